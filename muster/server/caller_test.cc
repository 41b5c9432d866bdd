// To which caller steps belong, at a task that is not the master's.
#include "muster/base/caller.h"

#include "absl/strings/match.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/client/connect.h"
#include "muster/client/session.h"
#include "muster/graph/build/scope.h"
#include "muster/ops/op.h"
#include "muster/server/server.h"
#include "muster/transport/api/local_address.h"

namespace muster {
namespace {

absl::Status NameOfCaller(KernelContext& c) {
  c.SetOutput(0, Tensor::Scalar<std::string>(OrThisProcess(c.step().caller)->ToString()));
  return absl::OkStatus();
}

DEFINE_OP(NameOfCallerForTest) {
  op.Output("name: string")
      .Stateful()
      .Doc("The caller that the step belongs to.")
      .Shape(ScalarShape)
      .NoGradient("a name is not a number")
      .Cpu(NameOfCaller);
}

class CallerOfStepsTest : public testing::Test {
 protected:
  void SetUp() override {
    std::vector<ReservedPort> ports;
    for (int i = 0; i < 2; ++i) ports.push_back(ReservedPort::Take("127.0.0.1", 0).value());
    const auto address = [&](int i) { return absl::StrCat("127.0.0.1:", ports[i].port()); };
    cluster_ = ClusterSpec({{"ps", {{0, address(0)}}}, {"worker", {{0, address(1)}}}});
    ports.clear();
    ps_ = StartTask("ps");
    worker_ = StartTask("worker");
  }
  std::unique_ptr<Server> StartTask(const std::string& job) {
    ServerOptions options;
    options.cluster = cluster_;
    options.job = job;
    auto server = Server::Create(std::move(options)).value();
    EXPECT_TRUE(server->Start().ok());
    return server;
  }
  // What steps of a session at the worker see at the ps.
  std::string NameAtPs(bool over_the_network) {
    Graph graph;
    const Scope scope = Scope(graph).WithDevice("/job:ps/task:0");
    const Output name = scope.Op("NameOfCallerForTest", {});
    EXPECT_TRUE(scope.status().ok()) << scope.status();
    SessionOptions options;
    options.target = worker_->target();
    options.config.use_rpc_for_inprocess_master = over_the_network;
    options.master = ConnectMaster(options.target, options.config).value();
    const auto session = Session::Create(graph, std::move(options)).value();
    const auto result = session->Run({}, {name});
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? (*result)[0].scalar<std::string>() : "";
  }

  ClusterSpec cluster_;
  std::unique_ptr<Server> ps_, worker_;
};

TEST_F(CallerOfStepsTest, IsTheClientOfTheMaster) {
  EXPECT_THAT(NameAtPs(/*over_the_network=*/true), testing::StartsWith("client 127.0.0.1:"));
}

TEST_F(CallerOfStepsTest, InTheMastersProcessIsTheTask) {
  EXPECT_EQ(NameAtPs(/*over_the_network=*/false), "client /job:worker/replica:0/task:0");
}

TEST(CallerOfLocalStepsTest, IsThisProcess) {
  Graph graph;
  const Scope scope(graph);
  const Output name = scope.Op("NameOfCallerForTest", {});
  const auto result = Session::Create(graph).value()->Run({}, {name});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ((*result)[0].scalar<std::string>(), "caller this process");
}

}  // namespace
}  // namespace muster
