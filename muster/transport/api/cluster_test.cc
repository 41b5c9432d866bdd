#include "muster/transport/api/cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/transport/api/cluster_json.h"

namespace muster {
namespace {

using testing::HasSubstr;

std::string ErrorOf(absl::string_view text) {
  const auto cluster = ClusterSpec::Parse(text);
  EXPECT_FALSE(cluster.ok()) << text;
  EXPECT_EQ(cluster.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(cluster.status().message());
}

TEST(ClusterSpecTest, ThreeFormsMeanTheSame) {
  const ClusterSpec expected({{"ps", {{0, "a:2222"}, {1, "b:2222"}}}, {"worker", {{0, "c:1"}}}});
  for (const char* text :
       {"ps=a:2222,b:2222;worker=c:1", " ps = a:2222 , b:2222 ; worker=c:1; ",
        "ps|a:2222;b:2222,worker|c:1", R"({"ps": ["a:2222", "b:2222"], "worker": ["c:1"]})",
        R"({"worker": {"0": "c:1"}, "ps": {"1": "b:2222", "0": "a:2222"}})"}) {
    const auto cluster = ClusterSpec::Parse(text);
    ASSERT_TRUE(cluster.ok()) << text << ": " << cluster.status();
    EXPECT_EQ(*cluster, expected) << text;
  }
  EXPECT_EQ(expected.ToString(), "ps=a:2222,b:2222;worker=c:1");
}

TEST(ClusterSpecTest, NumbersMayHaveHoles) {
  const auto cluster = ClusterSpec::Parse(R"({"worker": {"1": "h:2", "3": "[::1]:4"}})");
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_EQ(cluster->tasks(), (std::vector<TaskName>{{"worker", 1}, {"worker", 3}}));
  EXPECT_EQ(cluster->Address({"worker", 3}).value(), "[::1]:4");
  EXPECT_EQ(ClusterSpec::Parse(cluster->ToString()).value(), *cluster);
  EXPECT_EQ(cluster->Address({"worker", 0}).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(cluster->Address({"ps", 0}).status().message(),
              HasSubstr("Job \"ps\" was not defined in cluster"));
}

TEST(ClusterSpecTest, AnAddressIsOfOneTask) {
  EXPECT_EQ(ErrorOf("ps=localhost:2222;worker=localhost:2222"),
            "'localhost:2222' of /job:worker/task:0 is already the address of /job:ps/task:0: each "
            "task of "
            "a cluster listens at an address of its own");
  EXPECT_THAT(
      ErrorOf("worker=a:1,b:1,a:1"),
      HasSubstr("'a:1' of /job:worker/task:2 is already the address of /job:worker/task:0:"));
  EXPECT_THAT(ErrorOf("ps=localhost:5;worker=127.0.0.1:5"),
              HasSubstr("'127.0.0.1:5' of /job:worker/task:0 is already the address of "
                        "/job:ps/task:0 ('localhost:5'):"));
  EXPECT_THAT(
      ErrorOf(R"({"ps": ["Host:5"], "worker": {"7": "host:05"}})"),
      HasSubstr("'host:05' of /job:worker/task:7 is already the address of /job:ps/task:0"));
  // Other ports, other hosts, and ports that are still to be found.
  EXPECT_TRUE(ClusterSpec::Parse("ps=localhost:1;worker=localhost:2,127.0.0.2:1,[::1]:1").ok());
  EXPECT_TRUE(ClusterSpec::Parse("ps=localhost:0;worker=localhost:0,localhost:0").ok());
}

TEST(ClusterSpecTest, ErrorsNameThePart) {
  EXPECT_THAT(ErrorOf(""), HasSubstr("empty"));
  EXPECT_THAT(ErrorOf("ps"), HasSubstr("'ps' in the cluster has no '='"));
  EXPECT_THAT(ErrorOf("ps=a:1,,b:2"), HasSubstr("job 'ps' in the cluster has an empty address"));
  EXPECT_THAT(ErrorOf("ps=a:1;ps=b:1"), HasSubstr("job 'ps' is in the cluster twice"));
  EXPECT_THAT(ErrorOf("ps=a"), HasSubstr("'a' of /job:ps/task:0 is not an address"));
  EXPECT_THAT(ErrorOf("ps=a:b:1"), HasSubstr("the host 'a:b'"));
  EXPECT_THAT(ErrorOf("ps=a:65536"), HasSubstr("the port '65536'"));
  EXPECT_THAT(ErrorOf("ps=a:-1"), HasSubstr("the port '-1'"));
  EXPECT_THAT(ErrorOf("p-s=a:1"), HasSubstr("'p-s' is not a job's name"));
  EXPECT_THAT(ErrorOf("{}"), HasSubstr("no jobs"));
  EXPECT_THAT(ErrorOf("{"), HasSubstr("at byte 1"));
  EXPECT_THAT(ErrorOf(R"({"ps": "a:1"})"), HasSubstr("job 'ps' is a string"));
  EXPECT_THAT(ErrorOf(R"({"ps": [1]})"), HasSubstr("/job:ps/task:0 is a number"));
  EXPECT_THAT(ErrorOf(R"({"ps": {"x": "a:1"}})"), HasSubstr("a task 'x'"));
  EXPECT_THAT(ErrorOf(R"({"ps": {"-1": "a:1"}})"), HasSubstr("a task '-1'"));
  EXPECT_THAT(ErrorOf(R"({"ps": {"1": "a:1", "01": "a:2"}})"), HasSubstr("is in the cluster twice"));
}

TEST(TaskNameTest, ComesFromTaskAndDeviceNames) {
  for (const char* text :
       {"/job:ps/replica:0/task:1", "/job:ps/task:1", "/job:ps/replica:0/task:1/device:CPU:0"}) {
    EXPECT_EQ(TaskName::Parse(text).value().ToString(), "/job:ps/replica:0/task:1");
  }
  EXPECT_FALSE(TaskName::Parse("/job:ps").ok());
  EXPECT_FALSE(TaskName::Parse("nonsense").ok());
}

TEST(TfConfigTest, GivesClusterAndTask) {
  const auto config = ParseTfConfig(
      R"({"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}})");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->job, "worker");
  EXPECT_EQ(config->task, 1);
  EXPECT_EQ(config->cluster.tasks().size(), 2u);
  EXPECT_EQ(ParseTfConfig(R"({"task": {"type": "ps", "index": "3"}})").value().task, 3);
  EXPECT_EQ(ParseTfConfig("{}").value().task, -1);
  EXPECT_FALSE(ParseTfConfig(R"({"task": {"index": 1.5}})").ok());
  EXPECT_FALSE(ParseTfConfig("{'a': 1}").ok());
}

}  // namespace
}  // namespace muster
