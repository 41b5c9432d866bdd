#include "muster/worker/worker_session.h"

#include "muster/worker/worker_test.h"

namespace muster {
namespace {

// A closed session takes its steps along: their numbers are free again.
TEST_F(InProcessTest, StepsGoWithTheirSession) {
  StartCluster(1);
  for (int i = 0; i < 2; ++i) {
    const std::string graph =
        RegisterOn(0, [&](const Scope& s) { Send(s, Number(s, 3, "n"), 0, 0, "n:0", true); });
    RunGraphRequest request = Request(graph, 77);
    request.recv_keys = {Key(0, 0, "n:0")};
    const Answered<RunGraphReply> reply = Run(0, std::move(request));
    RunAll();
    EXPECT_EQ(reply.status(), absl::OkStatus());
    Answered<Empty> deleted;
    workers_[0]->DeleteWorkerSession({}, std::string(kSession), deleted.done());
    EXPECT_EQ(NewSession(0), absl::OkStatus());
  }
}

TEST_F(InProcessTest, StateIsSharedUnlessIsolatedAndGoesWithItsContainer) {
  StartCluster(1);
  EXPECT_EQ(NewSession(0, "second"), absl::OkStatus());
  CreateWorkerSessionRequest isolated;
  isolated.session = "alone";
  isolated.isolate_state = true;
  EXPECT_EQ(Create(0, std::move(isolated)), absl::OkStatus());
  const auto assign = [&](absl::string_view session, float value) {
    const std::string graph = RegisterOn(
        0,
        [&](const Scope& s) {
          s.Op("Assign", {Variable(s, "v"), Number(s, value, "value")}, {}, "assign");
        },
        session);
    RunGraphRequest request = Request(graph, NewStepId());
    request.session = std::string(session);
    const auto run = Run(0, std::move(request));
    RunReady();
    EXPECT_EQ(run.status(), absl::OkStatus());
  };
  std::map<std::string, std::string> readers;
  for (const std::string session : {"feed", "second", "alone"}) {
    readers[session] = RegisterOn(
        0,
        [&](const Scope& s) {
          Send(s, s.Op("Identity", {Variable(s, "v")}, {}, "v/read"), 0, 0, "v:0", true);
        },
        session);
  }
  const auto read = [&](const std::string& session) {
    RunGraphRequest request = Request(readers[session], NewStepId());
    request.session = session;
    request.recv_keys = {Key(0, 0, "v:0")};
    const auto run = Run(0, std::move(request));
    RunReady();
    return run;
  };
  assign("feed", 1);
  assign("alone", 2);
  EXPECT_EQ(Only(read("second")), 1);
  EXPECT_EQ(Only(read("alone")), 2);
  Answered<Empty> other;
  workers_[0]->CleanupAll({}, {"localhost"}, other.done());
  EXPECT_EQ(other.status(), absl::OkStatus());
  EXPECT_EQ(Only(read("feed")), 1);
  Answered<Empty> cleared;
  workers_[0]->CleanupAll({}, {}, cleared.done());  // the job's own
  EXPECT_TRUE(absl::IsFailedPrecondition(read("feed").status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(read("second").status()));
  assign("second", 3);
  EXPECT_EQ(Only(read("feed")), 3);
  EXPECT_EQ(Only(read("alone")), 2);
}

TEST_F(InProcessTest, SessionsOfADeadMasterGo) {
  StartCluster(1);
  CreateWorkerSessionRequest request;
  request.session = "old";
  request.master_task = "/job:m/replica:0/task:0";
  request.master_incarnation = 1;
  EXPECT_EQ(Create(0, request), absl::OkStatus());
  const std::string blocked = RegisterOn(
      0, [&](const Scope& s) { Recv(s, 0, 0, "never"); }, "old");
  RunGraphRequest run = Request(blocked, 1);
  run.session = "old";
  const auto running = Run(0, std::move(run));
  request.session = "same";
  EXPECT_EQ(Create(0, request), absl::OkStatus());
  EXPECT_EQ(workers_[0]->counts().sessions, 3);
  request.session = "new";
  request.master_incarnation = 2;
  EXPECT_EQ(Create(0, request), absl::OkStatus());
  RunReady();
  EXPECT_EQ(workers_[0]->counts().sessions, 2);
  EXPECT_TRUE(absl::IsAborted(running.status()));
}

TEST_F(InProcessTest, ASessionMayHaveAClusterOfItsOwn) {
  StartCluster(2);
  CreateWorkerSessionRequest request;
  request.session = "own";
  request.identity.emplace();
  request.identity->cluster = ClusterSpec({{"p", {{0, Address(0)}}}, {"q", {{3, Address(1)}}}});
  request.identity->self = TaskName{"p", 0, 0};
  EXPECT_EQ(Create(0, request), absl::OkStatus());
  request.identity->self = TaskName{"q", 3, 0};
  EXPECT_EQ(Create(1, request), absl::OkStatus());
  const std::string from = "/job:p/replica:0/task:0/device:CPU:0";
  const std::string to = "/job:q/replica:0/task:3/device:CPU:0";
  AttrMap attrs = {{"tensor_name", "y"},
                   {"send_device", from},
                   {"send_device_incarnation", Incarnation(0)},
                   {"recv_device", to}};
  auto producer = std::make_unique<Graph>();
  {
    const Scope s = Scope(*producer).WithDevice(from);
    AttrMap send = attrs;
    send.emplace("T", DType::kFloat);
    s.Op("_Send", {Number(s, 6, "six")}, send, "send");
  }
  auto consumer = std::make_unique<Graph>();
  {
    const Scope s = Scope(*consumer).WithDevice(to);
    attrs.emplace("tensor_type", DType::kFloat);
    AttrMap fetch = {{"T", DType::kFloat}, {"tensor_name", "z:0"},
                     {"send_device", to},  {"send_device_incarnation", int64_t{1}},
                     {"recv_device", to},  {"client_terminated", true}};
    s.Op("_Send", {s.Op("_Recv", {}, attrs, "recv")}, fetch, "fetch");
  }
  const auto first = Register(0, std::move(producer), "own");
  const auto second = Register(1, std::move(consumer), "own");
  ASSERT_EQ(first.status(), absl::OkStatus());
  ASSERT_EQ(second.status(), absl::OkStatus());
  RunGraphRequest run = Request(*second, 1);
  run.session = "own";
  run.recv_keys = {absl::StrCat(to, ";0000000000000001;", to, ";z:0;0:0")};
  const auto received = Run(1, run);
  run = Request(*first, 1);
  run.session = "own";
  Run(0, run);
  RunReady();
  EXPECT_EQ(Only(received), 6);
}

TEST_F(InProcessTest, StatefulKernelsBelongToTheSessionAndTheNodesName) {
  StartCluster(1);
  EXPECT_EQ(NewSession(0, "second"), absl::OkStatus());
  const auto draw = [&](absl::string_view session) {
    const std::string graph = RegisterOn(
        0,
        [&](const Scope& s) {
          const Output shape =
              s.Op("Const", {}, {{"dtype", DType::kInt32}, {"value", Tensor::Vector<int32_t>({})}},
                   "shape");
          const Output random = s.Op("RandomUniform", {shape},
                                     {{"dtype", DType::kFloat}, {"seed", int64_t{1}}}, "random");
          Send(s, random, 0, 0, "random:0", true);
        },
        session);
    RunGraphRequest request = Request(graph, NewStepId());
    request.session = std::string(session);
    request.recv_keys = {Key(0, 0, "random:0")};
    const auto run = Run(0, std::move(request));
    RunReady();
    return Only(run);
  };
  const float first = draw(kSession);
  const float second = draw(kSession);
  EXPECT_NE(first, second);
  EXPECT_EQ(draw("second"), first);
  EXPECT_EQ(draw("second"), second);
}

TEST_F(InProcessTest, ALegacyMasterNeedsNoSession) {
  StartCluster(1);
  auto graph = std::make_unique<Graph>();
  const Scope s = Scope(*graph).WithDevice(Cpu(0));
  Send(s, Number(s, 5, "five"), 0, 0, "five:0", true);
  RegisterGraphRequest request;
  request.in_session = false;
  request.graph = [&]() -> absl::StatusOr<std::unique_ptr<Graph>> { return std::move(graph); };
  Answered<std::string> handle;
  workers_[0]->RegisterGraph({}, std::move(request), handle.done());
  ASSERT_EQ(handle.status(), absl::OkStatus());
  RunGraphRequest run = Request(**handle, 1);
  run.session.clear();
  run.in_session = false;
  run.recv_keys = {Key(0, 0, "five:0")};
  const auto received = Run(0, std::move(run));
  RunReady();
  EXPECT_EQ(Only(received), 5);
}

}  // namespace
}  // namespace muster
