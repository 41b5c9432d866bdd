#include "muster/server/task_report.h"

#include <cmath>
#include <limits>
#include <map>
#include <regex>
#include <set>
#include <vector>

#include "absl/strings/str_split.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/base/json.h"
#include "muster/server/metrics_text.h"

namespace muster {
namespace {

using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;

// A ps that serves, a worker that trains, one that was never there, and one of TensorFlow.
ClusterStatus Example() {
  ClusterStatus cluster;
  cluster.asked = {"ps", 0};
  cluster.watches = true;
  cluster.tasks.resize(4);
  TaskView& ps = cluster.tasks[0];
  ps.status.task = {"ps", 0};
  ps.heard = true;
  ps.health = TaskHealth::kHealthy;
  ps.since = absl::Seconds(12);
  ps.status.incarnation = 0xabc;
  ps.status.devices = 1;
  ps.status.uptime = absl::Seconds(12.5);
  ps.status.variables = 3;
  ps.status.variable_bytes = 1 << 20;
  ps.status.global_step = 42;
  ps.status.bytes_sent = int64_t{5} << 32;
  TaskView& worker = cluster.tasks[1];
  worker.status.task = {"worker", 0};
  worker.heard = true;
  worker.health = TaskHealth::kSlow;
  worker.straggler = true;
  worker.explanation = "\"slow\"\n\\";
  worker.status.sessions = 1;
  worker.status.steps = 17;
  worker.status.steps_per_second = 2.5;
  cluster.tasks[2].status.task = {"worker", 1};
  TaskView& stock = cluster.tasks[3];
  stock.status.task = {"worker", 2};
  stock.status.is_muster = false;
  stock.status.devices = 2;
  stock.heard = true;
  stock.health = TaskHealth::kLost;
  return cluster;
}

const Json& At(const Json& object, absl::string_view name) {
  const Json* found = object.Find(name);
  EXPECT_NE(found, nullptr) << name;
  static const Json nothing;
  return found == nullptr ? nothing : *found;
}

TEST(TaskReportTest, JsonHasTheSameMembersForEveryTask) {
  const absl::StatusOr<Json> parsed = Json::Parse(ClusterJson(Example(), "host:1"));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(*At(*parsed, "target").string(), "host:1");
  EXPECT_EQ(*At(*parsed, "asked").string(), "/job:ps/replica:0/task:0");
  EXPECT_EQ(*At(*parsed, "global_step").number(), 42);
  const Json::List& tasks = *At(*parsed, "tasks").list();
  ASSERT_EQ(tasks.size(), 4u);
  std::set<std::string> names;
  for (const auto& [name, value] : *tasks[0].object()) names.insert(name);
  for (const Json& task : tasks) {
    std::set<std::string> others;
    for (const auto& [name, value] : *task.object()) others.insert(name);
    EXPECT_EQ(others, names);
  }
  EXPECT_EQ(*At(tasks[0], "bytes_sent").number(), 5.0 * 4294967296.0);
  EXPECT_EQ(*At(tasks[0], "variable_bytes").number(), 1 << 20);
  EXPECT_TRUE(At(tasks[0], "steps_per_second").is_null());
  EXPECT_EQ(*At(tasks[0], "incarnation").string(), "0000000000000abc");
  EXPECT_EQ(*At(tasks[1], "health").string(), "slow");
  EXPECT_EQ(*At(tasks[1], "straggler").boolean(), true);
  EXPECT_EQ(*At(tasks[1], "explanation").string(), "\"slow\"\n\\");
  EXPECT_EQ(*At(tasks[1], "steps_per_second").number(), 2.5);
  EXPECT_EQ(*At(tasks[2], "health").string(), "starting");
  EXPECT_TRUE(At(tasks[2], "steps").is_null());
  EXPECT_EQ(*At(tasks[3], "kind").string(), "tensorflow");
  EXPECT_EQ(*At(tasks[3], "devices").number(), 2);
  EXPECT_TRUE(At(tasks[3], "sessions").is_null());
  const Json::List& jobs = *At(*parsed, "jobs").list();
  ASSERT_EQ(jobs.size(), 2u);
  EXPECT_TRUE(At(jobs[0], "steps_per_second").is_null());
  EXPECT_EQ(*At(At(jobs[1], "steps_per_second"), "median").number(), 2.5);
  EXPECT_EQ(*At(jobs[1], "tasks").number(), 3);
}

TEST(TaskReportTest, JsonHasTheGpusOfATask) {
  TaskStatus status;
  status.gpus = {{1, "a \"card\"", 1 << 30, 5 << 20, 200, 190}};
  const absl::StatusOr<Json> parsed = Json::Parse(TaskJson(status));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  const Json::List& gpus = *At(*parsed, "gpus").list();
  ASSERT_EQ(gpus.size(), 1u);
  EXPECT_EQ(*At(gpus[0], "number").number(), 1);
  EXPECT_EQ(*At(gpus[0], "name").string(), "a \"card\"");
  EXPECT_EQ(*At(gpus[0], "memory_bytes").number(), 1 << 30);
  EXPECT_EQ(*At(gpus[0], "used_bytes").number(), 5 << 20);
  EXPECT_EQ(*At(gpus[0], "calls").number(), 200);
  EXPECT_EQ(*At(gpus[0], "replayed_calls").number(), 190);
}

TEST(TaskReportTest, WhatLaunchReadsIsThere) {
  const absl::StatusOr<Json> parsed = Json::Parse(TaskJson(Example().tasks[0].status));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(*At(*parsed, "job").string(), "ps");
  EXPECT_EQ(*At(*parsed, "task").number(), 0);
  EXPECT_EQ(*At(*parsed, "steps").number(), 0);
  EXPECT_EQ(*At(*parsed, "global_step").number(), 42);
  EXPECT_EQ(*At(*parsed, "joined").boolean(), false);
}

TEST(TaskReportTest, RatesOfAnEvenNumberHaveTheirMedianBetween) {
  ClusterStatus cluster = Example();
  for (const size_t i : {2u, 3u}) {
    cluster.tasks[i] = cluster.tasks[1];
    cluster.tasks[i].status.task.task = static_cast<int>(i);
    cluster.tasks[i].status.steps_per_second = 10.0 * static_cast<double>(i);
  }
  cluster.tasks[3].status.sessions = 0;  // it runs nothing
  const std::vector<JobRates> jobs = RatesOfJobs(cluster);
  EXPECT_EQ(jobs[1].running, 2);
  EXPECT_DOUBLE_EQ(jobs[1].min, 2.5);
  EXPECT_DOUBLE_EQ(jobs[1].max, 20);
  EXPECT_DOUBLE_EQ(jobs[1].median, 11.25);
}

// A strict reader of the format: families in one piece with HELP and TYPE, samples of no other.
struct Families {
  std::map<std::string, std::string> types;
  std::map<std::string, std::string> samples;  // by name and labels
};

// What a scrape and its linters want of names: label names of Prometheus' own are not ours to give,
// and names have base units and do not repeat the type.
void CheckNames(const std::string& family, const std::string& labels) {
  static const auto& kName = *new std::regex("muster(_[a-z0-9]+)+");
  EXPECT_TRUE(std::regex_match(family, kName)) << family;
  for (const absl::string_view word : absl::StrSplit(family, '_')) {
    EXPECT_THAT(word,
                Not(AnyOf("counter", "gauge", "ms", "milliseconds", "minutes", "kb", "mb", "gb",
                          "kilobytes", "megabytes", "percent", "count", "sum", "bucket", "info")))
        << family;
  }
  static const auto& kLabel = *new std::regex(R"re(([^=,]+)="((?:[^"\\]|\\[\\"n])*)"(,|$))re");
  size_t read = 0;
  for (auto at = std::sregex_iterator(labels.begin(), labels.end(), kLabel);
       at != std::sregex_iterator(); ++at) {
    const std::string label = (*at)[1];
    EXPECT_TRUE(std::regex_match(label, std::regex("[a-z]([a-z0-9]|_[a-z0-9])*"))) << label;
    EXPECT_THAT(label, Not(AnyOf("job", "instance", "le", "quantile"))) << "of Prometheus itself";
    read += static_cast<size_t>(at->length());
  }
  EXPECT_EQ(read, labels.size()) << labels;
}

Families Read(const std::string& text) {
  Families families;
  EXPECT_TRUE(!text.empty() && text.back() == '\n');
  std::string name;
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  lines.pop_back();
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::vector<std::string> words = absl::StrSplit(lines[i], absl::MaxSplits(' ', 3));
    if (words[0] == "#" && words.at(1) == "HELP") {
      name = words.at(2);
      EXPECT_FALSE(words.at(3).empty());
      EXPECT_EQ(families.types.count(name), 0u) << name << " stands twice";
      const std::vector<std::string> type = absl::StrSplit(lines.at(++i), ' ');
      EXPECT_EQ(type.at(1), "TYPE");
      EXPECT_EQ(type.at(2), name);
      EXPECT_THAT(type.at(3), AnyOf("counter", "gauge"));
      families.types[name] = type.at(3);
      continue;
    }
    const size_t brace = lines[i].find('{');
    const size_t end = lines[i].rfind("} ");
    if (brace == std::string::npos || end == std::string::npos) {
      ADD_FAILURE() << lines[i];
      continue;
    }
    EXPECT_EQ(lines[i].substr(0, brace), name);
    EXPECT_THAT(lines[i].substr(0, end), HasSubstr("{muster_job=\"ps\",task=\"0\""));
    CheckNames(name, lines[i].substr(brace + 1, end - brace - 1));
    const std::string key = lines[i].substr(0, end + 1);
    EXPECT_EQ(families.samples.count(key), 0u) << key << " stands twice";
    families.samples[key] = lines[i].substr(end + 2);
    char* rest = nullptr;
    (void)std::strtod(families.samples[key].c_str(), &rest);
    EXPECT_EQ(*rest, '\0') << lines[i];
    EXPECT_EQ(families.types[name] == "counter", name.ends_with("_total")) << name;
  }
  return families;
}

TEST(MetricsTextTest, OwnCountsAndTheStatesOfOthers) {
  const Families families = Read(MetricsText(Example()));
  EXPECT_EQ(families.types.at("muster_steps_total"), "counter");
  EXPECT_EQ(families.samples.at("muster_variables{muster_job=\"ps\",task=\"0\"}"), "3");
  EXPECT_EQ(families.samples.at("muster_global_step{muster_job=\"ps\",task=\"0\"}"), "42");
  EXPECT_EQ(families.samples.at("muster_tensor_bytes_sent_total{muster_job=\"ps\",task=\"0\"}"),
            "21474836480");
  EXPECT_EQ(families.samples.at("muster_uptime_seconds{muster_job=\"ps\",task=\"0\"}"), "12.5");
  // Not known yet.
  EXPECT_EQ(families.types.count("muster_steps_per_second"), 0u);
  const auto state = [&](int task, const char* name) {
    return families.samples.at(absl::StrCat(
        "muster_peer_state{muster_job=\"ps\",task=\"0\",peer_job=\"worker\",peer_task=\"", task,
        "\",state=\"", name, "\"}"));
  };
  EXPECT_EQ(state(0, "slow"), "1");
  EXPECT_EQ(state(0, "healthy"), "0");
  EXPECT_EQ(state(1, "starting"), "1");
  EXPECT_EQ(state(2, "lost"), "1");
}

TEST(MetricsTextTest, EveryGpuHasItsCounts) {
  GpuReport first, second;
  first.used_bytes = 7;
  second.number = 1;
  second.calls = 12;
  const Families families = Read(MetricsText(Example(), {}, {first, second}));
  const auto value = [&](const char* name, int gpu) {
    return families.samples.at(
        absl::StrCat(name, "{muster_job=\"ps\",task=\"0\",gpu=\"", gpu, "\"}"));
  };
  EXPECT_EQ(value("muster_gpu_memory_used_bytes", 0), "7");
  EXPECT_EQ(value("muster_gpu_memory_used_bytes", 1), "0");
  EXPECT_EQ(value("muster_gpu_calls_total", 1), "12");
}

TEST(MetricsTextTest, OddNumbersAndNames) {
  ClusterStatus cluster = Example();
  cluster.tasks[0].status.steps_per_second = std::numeric_limits<double>::infinity();
  EXPECT_THAT(MetricsText(cluster),
              HasSubstr("muster_steps_per_second{muster_job=\"ps\",task=\"0\"} +Inf"));
  cluster.tasks[0].status.steps_per_second = std::nan("");
  EXPECT_THAT(ClusterJson(cluster, "x"), Not(HasSubstr("nan")));
  EXPECT_THAT(MetricsText(cluster), HasSubstr("} NaN\n"));
}

}  // namespace
}  // namespace muster
