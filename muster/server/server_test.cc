#include "muster/server/server.h"

#include <thread>

#include "absl/time/clock.h"
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

// One ps and two workers in this process, connected by gRPC.
class ServerTest : public testing::Test {
 protected:
  void SetUp() override {
    std::vector<ReservedPort> ports;
    for (int i = 0; i < 3; ++i) ports.push_back(ReservedPort::Take("127.0.0.1", 0).value());
    const auto address = [&](int i) { return absl::StrCat("127.0.0.1:", ports[i].port()); };
    cluster_ =
        ClusterSpec({{"ps", {{0, address(0)}}}, {"worker", {{0, address(1)}, {1, address(2)}}}});
    ports.clear();
    ps_ = StartTask("ps", 0);
    workers_[0] = StartTask("worker", 0);
    workers_[1] = StartTask("worker", 1);
  }

  std::unique_ptr<Server> StartTask(const std::string& job, int task) {
    ServerOptions options;
    options.cluster = cluster_;
    options.job = job;
    options.task = task;
    options.stop_grace = absl::Milliseconds(300);
    auto server = Server::Create(std::move(options));
    EXPECT_TRUE(server.ok()) << server.status();
    const absl::Status started = (*server)->Start();
    EXPECT_TRUE(started.ok()) << started;
    return *std::move(server);
  }

  // Through gRPC, unless told otherwise: the shortcut would hide the wire.
  std::unique_ptr<Session> NewSession(const Server& server, bool direct = false) {
    EXPECT_TRUE(scope_.status().ok()) << scope_.status();
    SessionOptions options;
    options.target = server.target();
    options.config.use_rpc_for_inprocess_master = !direct;
    options.master = ConnectMaster(options.target, options.config).value();
    return Session::Create(graph_, std::move(options)).value();
  }

  // A variable on the ps, what gives it its first value, and what adds one to it.
  struct Counter {
    Output variable, initialize, increment;
  };
  Counter MakeCounter() {
    const Scope ps = scope_.WithDevice("/job:ps/task:0");
    Counter counter;
    counter.variable =
        ps.Op("VariableV2", {}, {{"shape", Shape({})}, {"dtype", DType::kFloat}}, "v");
    counter.initialize = ps.Op("Assign", {counter.variable, ps.ConstScalar<float>(10)});
    counter.increment = ps.Op("AssignAdd", {counter.variable, ps.ConstScalar<float>(1)});
    return counter;
  }

  static float Value(const absl::StatusOr<std::vector<Tensor>>& result) {
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? (*result)[0].scalar<float>() : -1;
  }

  ClusterSpec cluster_;
  std::unique_ptr<Server> ps_;
  std::unique_ptr<Server> workers_[2];
  Graph graph_;
  Scope scope_{graph_};
};

TEST_F(ServerTest, SessionsShareVariables) {
  const Counter counter = MakeCounter();
  const Scope worker = scope_.WithDevice("/job:worker/task:1");
  const Output twice = worker.Op("Mul", {counter.variable, worker.ConstScalar<float>(2)});
  const auto first = NewSession(*workers_[0]);
  EXPECT_EQ(Value(first->Run({}, {counter.initialize})), 10);
  EXPECT_EQ(Value(first->Run({}, {counter.increment})), 11);
  const auto second = NewSession(*workers_[1]);
  EXPECT_EQ(Value(second->Run({}, {twice})), 22);
  const auto direct = NewSession(*ps_, /*direct=*/true);
  EXPECT_EQ(Value(direct->Run({}, {counter.increment})), 12);
  EXPECT_EQ(Value(first->Run({}, {twice})), 24);
  EXPECT_EQ(first->ListDevices()->size(), 3u);
}

TEST_F(ServerTest, TheGraphGrowsBetweenRuns) {
  const Output a = scope_.ConstScalar<float>(3);
  const auto session = NewSession(*workers_[0]);
  EXPECT_EQ(Value(session->Run({}, {a})), 3);
  const Scope ps = scope_.WithDevice("/job:ps/task:0");
  const Output b = ps.Op("Add", {a, a});
  EXPECT_EQ(Value(session->Run({}, {b})), 6);
}

TEST_F(ServerTest, ErrorsKeepTheirCodeAndNameTheTask) {
  const Counter counter = MakeCounter();
  const auto session = NewSession(*workers_[0]);
  const auto unset = session->Run({}, {counter.increment});
  EXPECT_EQ(unset.status().code(), absl::StatusCode::kFailedPrecondition) << unset.status();
  EXPECT_THAT(unset.status().message(), HasSubstr("v"));
  EXPECT_EQ(Value(session->Run({}, {counter.initialize})), 10);
}

TEST_F(ServerTest, ResetClearsVariables) {
  const Counter counter = MakeCounter();
  EXPECT_EQ(Value(NewSession(*workers_[0])->Run({}, {counter.initialize})), 10);
  ASSERT_TRUE(ResetContainers(workers_[0]->target(), {}, {}).ok());
  EXPECT_EQ(NewSession(*workers_[0])->Run({}, {counter.increment}).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(ServerTest, ARestartedTaskServesNewSessions) {
  const Counter counter = MakeCounter();
  EXPECT_EQ(Value(NewSession(*workers_[0])->Run({}, {counter.initialize})), 10);
  ps_->Stop();
  EXPECT_TRUE(ps_->JoinFor(absl::ZeroDuration()));
  ps_ = StartTask("ps", 0);
  // Nothing is left of what the task held before.
  EXPECT_EQ(NewSession(*workers_[0])->Run({}, {counter.increment}).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Value(NewSession(*workers_[1])->Run({}, {counter.initialize})), 10);
}

TEST_F(ServerTest, StopEndsStepsThatWaitAndJoinReturns) {
  // No node ever sends what it waits for.
  const Scope worker = scope_.WithDevice("/job:worker/task:0/device:CPU:0");
  const std::string device = "/job:worker/replica:0/task:0/device:CPU:0";
  const Output never = worker.Op("_Recv", {},
                                 {{"tensor_type", DType::kFloat},
                                  {"tensor_name", "never"},
                                  {"send_device", device},
                                  {"send_device_incarnation", int64_t{1}},
                                  {"recv_device", device}},
                                 "never");
  const auto session = NewSession(*workers_[0]);
  absl::Status status;
  std::thread runs([&] { status = session->Run({}, {never}).status(); });
  std::thread joins([&] { workers_[0]->Join(); });
  EXPECT_FALSE(workers_[0]->JoinFor(absl::Milliseconds(300)));
  workers_[0]->Stop();
  joins.join();
  runs.join();
  EXPECT_FALSE(status.ok());
}

// Nothing that a client does not recover from: it has cancelled nothing.
TEST_F(ServerTest, ATaskThatStopsIsUnavailableToStepsOldAndNew) {
  const Counter counter = MakeCounter();
  const Scope ps = scope_.WithDevice("/job:ps/task:0");
  const AttrMap types = {{"component_types", std::vector<DType>{DType::kFloat}}};
  const Output queue = ps.Op("FIFOQueueV2", {}, types, "queue");
  const Output waits = ps.Op("QueueDequeueV2", {queue}, types, "waits");
  const auto session = NewSession(*workers_[0]);
  EXPECT_EQ(Value(session->Run({}, {counter.initialize})), 10);
  absl::Status old_step;
  std::thread runs(
      [&] { old_step = session->Run({}, {waits}, {counter.increment.node}).status(); });
  while (Value(session->Run({}, {counter.variable})) == 10) absl::SleepFor(absl::Milliseconds(1));
  // It is under way, so that the task serves others until its grace is over.
  std::thread stops([&] { ps_->StopWithin(absl::Seconds(2)); });
  absl::Status new_step;
  while (new_step.ok()) new_step = session->Run({}, {counter.increment}).status();
  EXPECT_EQ(new_step.code(), absl::StatusCode::kUnavailable) << new_step;
  // The task's own words: calls that gRPC drops are not UNAVAILABLE to TensorFlow's clients.
  EXPECT_THAT(std::string(new_step.message()),
              HasSubstr("the server /job:ps/replica:0/task:0 is being stopped"));
  stops.join();
  runs.join();
  EXPECT_EQ(old_step.code(), absl::StatusCode::kUnavailable) << old_step;
  EXPECT_THAT(std::string(old_step.message()), HasSubstr("/job:ps/replica:0/task:0"));
}

TEST_F(ServerTest, StepsThroughANodeEndWithWhoeverGivesUp) {
  const Scope ps = scope_.WithDevice("/job:ps/task:0");
  const AttrMap types = {{"component_types", std::vector<DType>{DType::kFloat}}};
  const Output queue = ps.Op("FIFOQueueV2", {}, types, "queue");
  const Output waits = ps.Op("QueueDequeueV2", {queue}, types, "waits");
  const Counter counter = MakeCounter();
  const auto session = NewSession(*workers_[0]);
  const auto given_up = std::make_shared<Cancellation>();
  session->EndStepsWith(waits.node, given_up);
  EXPECT_EQ(Value(session->Run({}, {counter.initialize})), 10);
  RunOptions options;
  options.timeout = absl::Seconds(30);  // for a step that nothing else ends
  std::thread gives_up([&] { given_up->Cancel(absl::AbortedError("nobody feeds it")); });
  EXPECT_EQ(session->Run({}, {}, {waits.node}, options).status(),
            absl::AbortedError("nobody feeds it"));
  gives_up.join();
  EXPECT_EQ(session->Run({}, {waits}, {}, options).status(), absl::AbortedError("nobody feeds it"));
  EXPECT_EQ(Value(session->Run({}, {counter.increment})), 11);
}

TEST(ServerErrorsTest, HaveTensorFlowsCodes) {
  const auto code = [](const char* cluster, const char* job, int task) {
    ServerOptions options;
    options.cluster = ClusterSpec::Parse(cluster).value();
    options.job = job;
    options.task = task;
    return Server::Create(std::move(options)).status().code();
  };
  EXPECT_EQ(code("ps=localhost:0", "x", 0), absl::StatusCode::kInternal);
  EXPECT_EQ(code("ps=localhost:0", "ps", 1), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code("ps=localhost:0;worker=localhost:0", "", 0), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code("ps=localhost:0,localhost:0", "ps", -1), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code("ps=localhost:0", "", -1), absl::StatusCode::kOk);
}

TEST(ServerErrorsTest, AServerIsStartedOnceAndStoppedForGood) {
  auto server = Server::CreateLocal().value();
  EXPECT_THAT(server->target(), HasSubstr("grpc://localhost:"));
  EXPECT_EQ(server->self().ToString(), "/job:local/replica:0/task:0");
  EXPECT_TRUE(server->Start().ok());
  EXPECT_TRUE(server->Start().ok());
  // The port is taken now.
  ServerOptions again;
  again.cluster = server->cluster();
  EXPECT_EQ(Server::Create(std::move(again)).status().code(), absl::StatusCode::kUnknown);
  server->Stop();
  server->Stop();
  EXPECT_EQ(server->Start().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace muster
