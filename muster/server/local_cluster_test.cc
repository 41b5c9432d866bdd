#include "muster/server/local_cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/client/connect.h"
#include "muster/client/session.h"
#include "muster/device/device.h"
#include "muster/graph/build/scope.h"
#include "muster/transport/api/local_address.h"

namespace muster {
namespace {

using testing::HasSubstr;

std::unique_ptr<Session> NewSession(const Graph& graph, const std::string& target) {
  SessionOptions options;
  options.target = target;
  options.master = ConnectMaster(options.target, options.config).value();
  return Session::Create(graph, std::move(options)).value();
}

// A counter on the ps that a worker doubles.
struct Model {
  Graph graph;
  Scope scope{graph};
  Output variable, initialize, increment, twice;

  explicit Model(const std::string& worker_name) {
    const Scope ps = scope.WithDevice("/job:ps/task:0");
    const Scope worker = scope.WithDevice(worker_name);
    variable = ps.Op("VariableV2", {}, {{"shape", Shape({})}, {"dtype", DType::kFloat}}, "v");
    initialize = ps.Op("Assign", {variable, ps.ConstScalar<float>(10)});
    increment = ps.Op("AssignAdd", {variable, ps.ConstScalar<float>(1)});
    twice = worker.Op("Mul", {variable, worker.ConstScalar<float>(2)});
  }
};

float Value(const absl::StatusOr<std::vector<Tensor>>& result) {
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? (*result)[0].scalar<float>() : -1;
}

TEST(LocalClusterTest, TasksShareVariablesAndHaveNoPort) {
  const auto cluster = LocalCluster::Create({{"ps", 1}, {"worker", 2}}).value();
  Model model("/job:worker/task:1");
  const auto first = NewSession(model.graph, cluster->target("worker", 0).value());
  const auto second = NewSession(model.graph, cluster->target("worker", 1).value());
  EXPECT_EQ(Value(first->Run({}, {model.initialize})), 10);
  EXPECT_EQ(Value(second->Run({}, {model.increment})), 11);
  EXPECT_EQ(Value(first->Run({}, {model.twice})), 22);
  EXPECT_EQ(first->ListDevices()->size(), 3u);
}

TEST(LocalClusterTest, ClustersDoNotMeet) {
  const auto one = LocalCluster::Create({{"ps", 1}, {"worker", 1}}).value();
  const auto other = LocalCluster::Create({{"ps", 1}, {"worker", 1}}).value();
  Model model("/job:worker/task:0");
  const auto session = NewSession(model.graph, one->target("worker", 0).value());
  EXPECT_EQ(Value(session->Run({}, {model.initialize})), 10);
  EXPECT_EQ(NewSession(model.graph, other->target("worker", 0).value())
                ->Run({}, {model.increment})
                .status()
                .code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(LocalClusterTest, WrongNumbersAndNamesAreRefused) {
  EXPECT_FALSE(LocalCluster::Create({{"ps", 0}}).ok());
  EXPECT_FALSE(LocalCluster::Create({}).ok());
  EXPECT_FALSE(LocalCluster::Create({{"no job", 1}}).ok());
  const auto cluster = LocalCluster::Create({{"worker", 1}}).value();
  EXPECT_EQ(cluster->task("worker", 1), nullptr);
  EXPECT_EQ(cluster->target("ps", 0).status().code(), absl::StatusCode::kNotFound);
}

TEST(LocalClusterTest, AStoppedTaskIsNamed) {
  const auto cluster = LocalCluster::Create({{"ps", 1}, {"worker", 1}}).value();
  Model model("/job:worker/task:0");
  const auto session = NewSession(model.graph, cluster->target("worker", 0).value());
  EXPECT_EQ(Value(session->Run({}, {model.initialize})), 10);
  cluster->task("ps", 0)->StopWithin(absl::ZeroDuration());
  EXPECT_TRUE(cluster->task("ps", 0)->JoinFor(absl::ZeroDuration()));
  const absl::Status failed = session->Run({}, {model.twice}).status();
  EXPECT_THAT(std::string(failed.message()), HasSubstr("/job:ps/replica:0/task:0"));
}

// ps 0 and worker 0 share this process and listen too; worker 1 is reached by gRPC.
TEST(LocalClusterTest, SomeTasksAreElsewhere) {
  std::vector<ReservedPort> ports;
  for (int i = 0; i < 3; ++i) ports.push_back(ReservedPort::Take("127.0.0.1", 0).value());
  const auto address = [&](int i) { return absl::StrCat("127.0.0.1:", ports[i].port()); };
  const ClusterSpec cluster(
      {{"ps", {{0, address(0)}}}, {"worker", {{0, address(1)}, {1, address(2)}}}});
  const auto shared = std::make_shared<LocalTasks>(
      Server::SharedScheduler(), std::set<std::string>{address(0), address(1)}, false);
  ports.clear();
  std::vector<std::unique_ptr<Server>> servers;
  for (const TaskName& name : cluster.tasks()) {
    ServerOptions options;
    options.cluster = cluster;
    options.job = name.job;
    options.task = name.task;
    if (shared->Has(cluster.Address(name).value())) options.local_tasks = shared;
    servers.push_back(Server::Create(std::move(options)).value());
    ASSERT_TRUE(servers.back()->Start().ok());
  }
  for (const std::string worker : {"/job:worker/task:0", "/job:worker/task:1"}) {
    Model model(worker);
    for (const auto& server : servers) {
      const auto session = NewSession(model.graph, server->target());
      EXPECT_EQ(Value(session->Run({}, {model.initialize})), 10);
      EXPECT_EQ(Value(session->Run({}, {model.increment})), 11);
      EXPECT_EQ(Value(session->Run({}, {model.twice})), 22);
    }
  }
  ServerOptions strange;
  strange.cluster = cluster;
  strange.job = "worker";
  strange.task = 1;
  strange.local_tasks = shared;
  EXPECT_EQ(Server::Create(std::move(strange)).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace muster
