#include "muster/master/master.h"

#include "absl/strings/match.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/master/fake_worker_test.h"
#include "muster/transport/status_proto.h"

namespace muster {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using testing::UnorderedElementsAre;

constexpr char kPs[] = "/job:ps/replica:0/task:0";
constexpr char kWorker[] = "/job:worker/replica:0/task:0";

absl::Status AddNodes(Graph& graph, absl::FunctionRef<void(const Scope&)> build) {
  Scope scope(graph);
  build(scope);
  return scope.status();
}

// x and y = x * x on the ps, z = -y on the worker, "go" without outputs.
absl::Status SmallGraph(Graph& graph) {
  return AddNodes(graph, [](const Scope& scope) {
    const Scope ps = scope.WithDevice("/job:ps/task:0");
    const Output x =
        ps.Op("Placeholder", {}, {{"dtype", DType::kFloat}, {"shape", PartialShape()}}, "x");
    const Output y = ps.Op("Square", {x}, {}, "y");
    scope.WithDevice("/job:worker/task:0").Op("Neg", {y}, {}, "z");
    ps.Add("NoOp", {}, {}, "go");
  });
}

class MasterTest : public testing::Test {
 protected:
  MasterTest() {
    for (const char* task : {kPs, kWorker}) {
      workers_[task] = std::make_shared<FakeWorker>(task, task == kPs ? 0x11 : 0x22, log_);
      transport_.by_address[task == kPs ? "ps0:2222" : "worker0:2222"] = workers_[task];
    }
    MasterOptions options;
    options.self = {"worker", 0, 0};
    options.port = 2222;
    options.scheduler = scheduler_.get();
    options.transport = &transport_;
    options.peers = std::make_shared<FakePeers>(workers_);
    options.local_worker = workers_[kWorker];
    master_ = Master::Create(std::move(options));
  }

  template <typename Reply, typename Start>
  absl::StatusOr<Reply> Wait(Start start) {
    auto reply = std::make_shared<std::optional<absl::StatusOr<Reply>>>();
    start([reply](absl::StatusOr<Reply> r) { *reply = std::move(r); });
    scheduler_->RunUntil([&] { return reply->has_value(); });
    if (!*reply) return absl::UnknownError("nothing came");
    return **std::move(reply);
  }
  absl::StatusOr<std::string> Create(SessionConfig config = {}, GraphEdit graph = SmallGraph,
                                     std::string target = "grpc://worker0:2222") {
    CreateSessionRequest request;
    request.graph = std::move(graph);
    request.config = std::move(config);
    request.target = std::move(target);
    auto reply = Wait<CreateSessionReply>(
        [&](auto done) { master_->CreateSession({}, std::move(request), std::move(done)); });
    if (!reply.ok()) return reply.status();
    return reply->session;
  }
  absl::StatusOr<RunStepReply> Run(RunStepRequest request, CallOptions options = {}) {
    return Wait<RunStepReply>(
        [&](auto done) { master_->RunStep(options, std::move(request), std::move(done)); });
  }
  RunStepRequest Step(const std::string& session, std::vector<std::string> feeds,
                      std::vector<std::string> fetches, std::vector<std::string> targets = {}) {
    RunStepRequest request;
    request.session = session;
    for (const std::string& feed : feeds) request.feeds.push_back({feed, Tensor::Scalar<float>(1)});
    request.fetches = std::move(fetches);
    request.targets = std::move(targets);
    return request;
  }
  absl::StatusOr<Empty> Close(const std::string& session) {
    return Wait<Empty>([&](auto done) { master_->CloseSession({}, session, std::move(done)); });
  }
  // What happened since the last time.
  std::vector<std::string> Log() { return std::exchange(log_, {}); }
  int Count(absl::string_view what) const {
    return static_cast<int>(std::count_if(log_.begin(), log_.end(), [&](const std::string& line) {
      return absl::StartsWith(line, what);
    }));
  }
  void Advance(absl::Duration by) {
    bool passed = false;
    scheduler_->ScheduleAfter(by, [&passed] { passed = true; });
    scheduler_->RunUntil([&passed] { return passed; });
  }

  std::unique_ptr<SimulatedScheduler> scheduler_ = SimulatedScheduler::Create(1);
  std::vector<std::string> log_;
  std::map<std::string, std::shared_ptr<FakeWorker>> workers_;
  FakeTransport transport_;
  std::shared_ptr<Master> master_;
};

std::string Text(const absl::Status& status) {
  return absl::StrCat(absl::StatusCodeToString(status.code()), ": ", status.message());
}
template <typename T>
std::string Text(const absl::StatusOr<T>& result) {
  return Text(result.status());
}

TEST_F(MasterTest, SessionIsMadeAndClosedEverywhere) {
  const auto session = Create();
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_THAT(*session, SizeIs(16));
  EXPECT_THAT(Log(), UnorderedElementsAre(absl::StrCat("GetStatus ", kPs),
                                          absl::StrCat("GetStatus ", kWorker),
                                          absl::StrCat("CreateWorkerSession ", kPs),
                                          absl::StrCat("CreateWorkerSession ", kWorker)));
  const CreateWorkerSessionRequest& request = workers_[kPs]->sessions[0];
  EXPECT_EQ(request.session, *session);
  EXPECT_EQ(request.master_task, kWorker);
  EXPECT_EQ(request.master_incarnation, 0x22u);
  EXPECT_FALSE(request.identity.has_value());
  EXPECT_TRUE(Close(*session).ok());
  EXPECT_EQ(Count("DeleteWorkerSession"), 2);
  EXPECT_EQ(Text(Close(*session)),
            absl::StrCat("ABORTED: Session ", *session,
                         " is not found. Possibly, this master has restarted."));
  EXPECT_EQ(Text(Run(Step(*session, {}, {"y:0"}))),
            absl::StrCat("ABORTED: Session ", *session, " is not found."));
}

TEST_F(MasterTest, FiltersLeaveTasksAlone) {
  SessionConfig config;
  config.device_filters = {"/job:worker"};
  ASSERT_TRUE(Create(config, [](Graph&) { return absl::OkStatus(); }).ok());
  EXPECT_THAT(Log(), ElementsAre(absl::StrCat("GetStatus ", kWorker),
                                 absl::StrCat("CreateWorkerSession ", kWorker)));
  config.device_filters = {"/jub:worker"};
  EXPECT_THAT(Text(Create(config)), HasSubstr("INVALID_ARGUMENT: Could not parse device filter"));
}

TEST_F(MasterTest, LazySessionsGrowToTheTasksThatNodesName) {
  SessionConfig config;
  config.lazy_tasks = true;
  workers_[kPs]->is_up = false;
  const auto session = Create(config, [](Graph& graph) {
    return AddNodes(graph, [](const Scope& s) { s.Add("NoOp", {}, {}, "here"); });
  });
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_THAT(Log(), ElementsAre(absl::StrCat("GetStatus ", kWorker),
                                 absl::StrCat("CreateWorkerSession ", kWorker)));
  workers_[kPs]->is_up = true;
  ExtendSessionRequest extend{*session, SmallGraph, 0};
  const auto version = Wait<int64_t>(
      [&](auto done) { master_->ExtendSession({}, std::move(extend), std::move(done)); });
  ASSERT_TRUE(version.ok()) << version.status();
  EXPECT_EQ(*version, 1);
  EXPECT_THAT(Log(), ElementsAre(absl::StrCat("GetStatus ", kPs),
                                 absl::StrCat("CreateWorkerSession ", kPs)));
}

TEST_F(MasterTest, CreationWaitsForMissingTasks) {
  workers_[kPs]->is_up = false;
  std::optional<absl::StatusOr<CreateSessionReply>> reply;
  CreateSessionRequest request;
  request.graph = SmallGraph;
  master_->CreateSession({}, std::move(request),
                         [&](absl::StatusOr<CreateSessionReply> r) { reply = std::move(r); });
  Advance(absl::Minutes(10));
  EXPECT_FALSE(reply.has_value());
  workers_[kPs]->ComeUp();
  scheduler_->RunUntil([&] { return reply.has_value(); });
  EXPECT_TRUE(reply->ok()) << reply->status();
}

TEST_F(MasterTest, CreationEndsWithItsClient) {
  workers_[kPs]->is_up = false;
  CallOptions options;
  options.cancellation = std::make_shared<Cancellation>();
  scheduler_->ScheduleAfter(absl::Seconds(5), [cancellation = options.cancellation] {
    cancellation->Cancel(absl::DeadlineExceededError("Deadline Exceeded"));
  });
  CreateSessionRequest request;
  request.graph = SmallGraph;
  const auto reply = Wait<CreateSessionReply>(
      [&](auto done) { master_->CreateSession(options, std::move(request), std::move(done)); });
  EXPECT_EQ(Text(reply), "DEADLINE_EXCEEDED: Deadline Exceeded");
  EXPECT_EQ(master_->counts().sessions, 0);
}

TEST_F(MasterTest, ErrorsOfCreationComeAfterTheTasksAnswered) {
  SessionConfig config;
  config.use_per_session_threads = true;
  EXPECT_EQ(Text(Create(config)),
            "INVALID_ARGUMENT: Distributed session does not support session thread pool options.");
  EXPECT_EQ(Text(Create({}, [](Graph&) { return NotFound("Op type not registered"); })),
            "NOT_FOUND: Op type not registered");
  EXPECT_THAT(Text(Create({},
                          [](Graph& graph) {
                            return AddNodes(graph, [](const Scope& s) {
                              s.WithDevice("/job:nowhere").Add("NoOp", {}, {}, "lost");
                            });
                          })),
              HasSubstr("Cannot assign a device for operation lost"));
  EXPECT_EQ(Count("GetStatus"), 6);
  workers_[kPs]->create_session_status = absl::InternalError("full");
  log_.clear();
  EXPECT_EQ(Text(Create()), "INTERNAL: full");
  EXPECT_EQ(Count("DeleteWorkerSession"), 2);
}

TEST_F(MasterTest, SessionsMayBringTheirCluster) {
  SessionConfig config;
  config.cluster = ClusterSpec({{"alpha", {{0, "ps0:2222"}}}, {"boss", {{3, "worker0:2222"}}}});
  const auto session = Create(config, [](Graph& graph) {
    return AddNodes(
        graph, [](const Scope& s) { s.WithDevice("/job:alpha/task:0").Add("NoOp", {}, {}, "n"); });
  });
  ASSERT_TRUE(session.ok()) << session.status();
  const CreateWorkerSessionRequest& request = workers_[kPs]->sessions.at(0);
  EXPECT_EQ(request.master_task, "/job:boss/replica:0/task:3");
  EXPECT_TRUE(request.isolate_state);
  EXPECT_EQ(request.identity->self, (TaskName{"alpha", 0, 0}));
  const auto devices = Wait<ListDevicesReply>(
      [&](auto done) { master_->ListDevices({}, *session, std::move(done)); });
  ASSERT_THAT(devices->local, SizeIs(1));
  EXPECT_EQ(devices->local[0].name, "/job:boss/replica:0/task:3/device:CPU:0");
  EXPECT_EQ(devices->remote.at(0).name, "/job:alpha/replica:0/task:0/device:CPU:0");
  EXPECT_EQ(devices->remote.at(0).incarnation, 0x11u);

  EXPECT_THAT(Text(Create(config, SmallGraph, "grpc://elsewhere:2222")),
              HasSubstr("INVALID_ARGUMENT: The master (current machine) is not included in the "
                        "provided cluster_def. "));
  config.cluster = ClusterSpec({{"worker", {{0, "worker0:2222"}}}});
  EXPECT_EQ(
      Text(Create(config)),
      "INVALID_ARGUMENT: The ClusterSpec names the job and task index to be the same names "
      "that were provided when the server booted. This is currently not allowed. Job: worker, "
      "task index: 0");
}

TEST_F(MasterTest, ExtensionsFollowVersions) {
  const std::string session = Create().value();
  const auto extend = [&](int64_t version, const char* name) {
    ExtendSessionRequest request;
    request.session = session;
    request.current_version = version;
    request.graph = [name](Graph& graph) {
      return AddNodes(graph, [name](const Scope& s) { s.Add("NoOp", {}, {}, name); });
    };
    return Wait<int64_t>(
        [&](auto done) { master_->ExtendSession({}, std::move(request), std::move(done)); });
  };
  EXPECT_EQ(Text(extend(3, "n")), "ABORTED: Current version is 0 but caller expected 3.");
  EXPECT_EQ(extend(0, "n").value(), 1);
  EXPECT_TRUE(Run(Step(session, {}, {}, {"n"})).ok());
  // A bad extension leaves no trace.
  ExtendSessionRequest bad;
  bad.session = session;
  bad.current_version = 1;
  bad.graph = [](Graph& graph) {
    return AddNodes(graph,
                    [](const Scope& s) { s.WithDevice("/job:nowhere").Add("NoOp", {}, {}, "m"); });
  };
  EXPECT_FALSE(Wait<int64_t>([&](auto done) {
                 master_->ExtendSession({}, std::move(bad), std::move(done));
               }).ok());
  EXPECT_EQ(extend(1, "m").value(), 2);
}

TEST_F(MasterTest, AnExtensionSentAgainHappensOnce) {
  const std::string session = Create().value();
  CallOptions from_muster;
  from_muster.peer = CallOptions::Peer::kMuster;
  const auto extend = [&](size_t fingerprint, CallDone<int64_t> done) {
    ExtendSessionRequest request;
    request.session = session;
    request.fingerprint = fingerprint;
    request.graph = [](Graph& graph) {
      return AddNodes(graph, [](const Scope& s) { s.Add("NoOp", {}, {}, "n"); });
    };
    master_->ExtendSession(from_muster, std::move(request), std::move(done));
  };
  std::vector<std::string> answers;
  const auto record = [&](absl::StatusOr<int64_t> version) {
    answers.push_back(version.ok() ? absl::StrCat(*version) : Text(version));
  };
  extend(77, record);
  extend(77, record);  // while it is under way
  scheduler_->RunUntil([&] { return answers.size() == 2; });
  extend(77, record);  // afterwards
  extend(78, record);  // another one
  EXPECT_THAT(answers,
              ElementsAre("1", "1", "1", "ABORTED: Current version is 1 but caller expected 0."));
}

TEST_F(MasterTest, StepsAreSpreadOverTheTasks) {
  const std::string session = Create().value();
  Log();
  const auto reply = Run(Step(session, {"x:0"}, {"z:0", "y:0", "z:0"}));
  ASSERT_TRUE(reply.ok()) << reply.status();
  ASSERT_THAT(reply->tensors, SizeIs(2));
  EXPECT_EQ(reply->tensors[0].name, "z:0");
  EXPECT_EQ(reply->tensors[1].name, "y:0");
  scheduler_->RunUntil([&] { return Count("CleanupGraph") == 2; });
  EXPECT_EQ(Count("RegisterGraph"), 2);
  EXPECT_EQ(Count("RunGraph"), 2);

  const RunGraphRequest& own = workers_[kWorker]->runs.at(0);
  const std::string device = absl::StrCat(kWorker, "/device:CPU:0");
  const auto key = [&](absl::string_view tensor) {
    return absl::StrCat(device, ";0000000000000022;", device, ";", tensor, ";0:0");
  };
  ASSERT_THAT(own.send, SizeIs(1));
  EXPECT_EQ(own.send[0].name, key("x:0"));
  EXPECT_THAT(own.recv_keys, UnorderedElementsAre(key("y:0"), key("z:0")));
  EXPECT_THAT(workers_[kPs]->runs.at(0).send, IsEmpty());
  EXPECT_EQ(own.step_id, workers_[kPs]->runs[0].step_id);
  EXPECT_LT(own.step_id, int64_t{1} << 57);
  EXPECT_NE(own.request_id, workers_[kPs]->runs[0].request_id);

  const Graph& graph = *workers_[kWorker]->graphs.at(0);
  const Node* recv = graph.FindNode("_recv_x_0");
  ASSERT_NE(recv, nullptr);
  EXPECT_EQ(recv->op(), "_Recv");
  EXPECT_EQ(recv->device(), device);
  EXPECT_EQ(recv->Attr<std::string>("tensor_name").value(), "x:0");
  EXPECT_EQ(recv->Attr<std::string>("send_device").value(), device);
  EXPECT_EQ(recv->Attr<std::string>("recv_device").value(), device);
  EXPECT_EQ(recv->Attr<int64_t>("send_device_incarnation").value(), 0x22);
  EXPECT_TRUE(recv->Attr<bool>("client_terminated").value());
  EXPECT_NE(graph.FindNode("_send_z_0"), nullptr);

  // The plan is kept, whatever the order.
  Log();
  EXPECT_TRUE(Run(Step(session, {"x:0"}, {"y:0", "z:0"})).ok());
  EXPECT_EQ(Count("RegisterGraph"), 0);
  EXPECT_EQ(Count("RunGraph"), 2);
  // What only one task runs is sent to no other.
  Log();
  EXPECT_TRUE(Run(Step(session, {}, {}, {"go"})).ok());
  EXPECT_EQ(Count(absl::StrCat("RunGraph ", kWorker)), 0);
}

TEST_F(MasterTest, RequestsAreCheckedInTensorFlowsWords) {
  const std::string s = Create().value();
  EXPECT_EQ(Text(Run(Step(s, {}, {}))),
            "INVALID_ARGUMENT: Must specify at least one target to fetch or execute.");
  EXPECT_EQ(Text(Run(Step(s, {}, {"nope:0"}))), "NOT_FOUND: FetchOutputs node nope:0: not found");
  EXPECT_EQ(Text(Run(Step(s, {"nope:0"}, {"y:0"}))),
            "NOT_FOUND: FeedInputs: unable to find feed output nope:0");
  EXPECT_EQ(Text(Run(Step(s, {}, {}, {"nope"}))),
            "NOT_FOUND: PruneForTargets: Some target nodes not found: nope ");
  EXPECT_EQ(Text(Run(Step(s, {"x:0"}, {"y:5"}))),
            "INVALID_ARGUMENT: FetchOutputs y:5: output index too large, must be < 1");
  EXPECT_EQ(Text(Run(Step(s, {"x:0", "x:0"}, {"y:0"}))),
            "INVALID_ARGUMENT: Endpoint \"x:0\" fed more than once.");
  EXPECT_EQ(Text(Run(Step(s, {"x:0"}, {"x:0"}))), "INVALID_ARGUMENT: x:0 is both fed and fetched.");
  const absl::Status unplanned = Run(Step(s, {"x"}, {"y:0"})).status();
  EXPECT_EQ(Text(unplanned),
            "INVALID_ARGUMENT: Cannot feed 'x': the name of a tensor says which output of the node "
            "it is, as in 'x:0'");
  EXPECT_FALSE(IsAfterStart(unplanned));
  EXPECT_EQ(Text(Run(Step(s, {"x:0"}, {"y"}))),
            "INVALID_ARGUMENT: Cannot fetch 'y': the name of a tensor says which output of the "
            "node it is, as in 'y:0'");
  RunStepRequest wrong = Step(s, {"x:0"}, {"y:0"});
  wrong.feeds[0].tensor = Tensor::Scalar<int32_t>(1);
  EXPECT_EQ(Text(Run(wrong)),
            "INTERNAL: From /job:worker/replica:0/task:0:\nOutput 0 of type int32 does not match "
            "declared output type float for node {{node _recv_x_0}}");
  EXPECT_TRUE(IsAfterStart(Run(wrong).status()));
  RunStepRequest debugged = Step(s, {"x:0"}, {"y:0"});
  debugged.options.has_debug_watches = true;
  EXPECT_EQ(Run(debugged).status().code(), absl::StatusCode::kUnimplemented);
}

TEST_F(MasterTest, TheRootErrorIsReportedAndTheOthersCancelled) {
  const std::string session = Create().value();
  workers_[kPs]->run = [](const RunGraphRequest&) {
    return absl::StatusOr<RunGraphReply>(InvalidArgument("bad\n\t [[{{node y}}]]"));
  };
  workers_[kWorker]->run = [](const RunGraphRequest&) { return std::nullopt; };
  EXPECT_EQ(Text(Run(Step(session, {"x:0"}, {"z:0"}))),
            "INVALID_ARGUMENT: From /job:ps/replica:0/task:0:\nbad\n\t [[{{node y}}]]");
  EXPECT_EQ(Count("CleanupGraph"), 2);
  // A derived error alone cancels nobody.
  workers_[kPs]->run = [](const RunGraphRequest&) {
    return absl::StatusOr<RunGraphReply>(Derived(absl::AbortedError("consequence")));
  };
  workers_[kWorker]->run = [](const RunGraphRequest&) {
    return absl::StatusOr<RunGraphReply>(absl::AbortedError("cause"));
  };
  EXPECT_EQ(Text(Run(Step(session, {"x:0"}, {"z:0"}))),
            "ABORTED: From /job:worker/replica:0/task:0:\ncause");
  workers_[kPs]->run = workers_[kWorker]->run;
  EXPECT_THAT(Text(Run(Step(session, {"x:0"}, {"z:0"}))),
              HasSubstr("ABORTED: \n=====================\nABORTED: From /job:"));
}

TEST_F(MasterTest, StepsEndWithTimeoutsClientsAndSessions) {
  const std::string session = Create().value();
  workers_[kPs]->run = [](const RunGraphRequest&) { return std::nullopt; };
  RunStepRequest step = Step(session, {}, {}, {"go"});
  step.options.timeout = absl::Seconds(3);
  EXPECT_EQ(Text(Run(step)), "DEADLINE_EXCEEDED: Deadline Exceeded");

  CallOptions call;
  call.cancellation = std::make_shared<Cancellation>();
  scheduler_->ScheduleAfter(absl::Seconds(1), [cancellation = call.cancellation] {
    cancellation->Cancel(absl::DeadlineExceededError("too late"));
  });
  EXPECT_EQ(Text(Run(Step(session, {}, {}, {"go"}), call)), "DEADLINE_EXCEEDED: too late");

  std::optional<absl::StatusOr<RunStepReply>> reply;
  master_->RunStep({}, Step(session, {}, {}, {"go"}),
                   [&](absl::StatusOr<RunStepReply> r) { reply = std::move(r); });
  Advance(absl::Seconds(1));
  EXPECT_EQ(master_->counts().steps, 1);
  EXPECT_TRUE(Close(session).ok());
  ASSERT_TRUE(reply.has_value());
  EXPECT_EQ(Text(*reply),
            "CANCELLED: Step was cancelled by an explicit call to `Session::Close()`.");
}

TEST_F(MasterTest, ClosingDoesNotWaitForTheDead) {
  const std::string session = Create().value();
  workers_[kPs]->is_up = false;
  const absl::Time before = scheduler_->clock().Now();
  EXPECT_TRUE(Close(session).ok());
  EXPECT_LE(scheduler_->clock().Now() - before, absl::Seconds(2));
}

TEST_F(MasterTest, StepsSentAgainRunOnce) {
  const std::string session = Create().value();
  RunStepRequest step = Step(session, {}, {"z:0"});
  step.feeds.push_back({"x:0", Tensor::Scalar<float>(1)});
  step.request_id = 4711;
  std::vector<CallDone<RunGraphReply>> held;
  EXPECT_TRUE(Run(step).ok());
  EXPECT_EQ(Count("RunGraph"), 2);
  const auto again = Run(step);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->tensors.at(0).tensor.scalar<float>(), 7);
  EXPECT_EQ(Count("RunGraph"), 2);
  // Something else under the same id is refused.
  RunStepRequest other = Step(session, {"x:0"}, {"y:0"});
  other.request_id = 4711;
  EXPECT_THAT(Text(Run(other)),
              HasSubstr("ABORTED: The same RunStep (Master) request was received twice. "));
  PartialRunSetupRequest setup{session, {"x:0"}, {"y:0"}, {}, 4712};
  const auto set_up = [&] {
    return Wait<std::string>(
        [&](auto done) { master_->PartialRunSetup({}, setup, std::move(done)); });
  };
  const auto handle = set_up();
  ASSERT_TRUE(handle.ok()) << handle.status();
  EXPECT_EQ(set_up().value(), *handle);
  setup.feeds.clear();
  EXPECT_THAT(Text(set_up()),
              HasSubstr("ABORTED: The same PartialRunSetup (Master) request was received twice. "));
}

TEST_F(MasterTest, AStepSentAgainJoinsTheOneUnderWay) {
  const std::string session = Create().value();
  workers_[kPs]->run = [](const RunGraphRequest&) { return std::nullopt; };
  RunStepRequest step = Step(session, {}, {}, {"go"});
  step.request_id = 99;
  step.options.timeout = absl::Seconds(30);
  CallOptions lost;
  lost.cancellation = std::make_shared<Cancellation>();
  std::vector<std::string> replies;
  master_->RunStep(lost, step, [&](absl::StatusOr<RunStepReply> r) { replies.push_back(Text(r)); });
  Advance(absl::Seconds(1));
  lost.cancellation->Cancel(absl::UnavailableError("Socket closed"));
  Advance(absl::Seconds(1));
  EXPECT_THAT(replies, ElementsAre("UNAVAILABLE: Socket closed"));
  master_->RunStep({}, step, [&](absl::StatusOr<RunStepReply> r) { replies.push_back(Text(r)); });
  scheduler_->RunUntil([&] { return replies.size() == 2; });
  EXPECT_EQ(replies[1], "DEADLINE_EXCEEDED: Deadline Exceeded");
  EXPECT_EQ(Count("RunGraph"), 1);
  EXPECT_EQ(master_->counts().sessions, 1);
}

TEST_F(MasterTest, CallablesSentAgainRunOnce) {
  const std::string session = Create().value();
  MakeCallableRequest make;
  make.session = session;
  make.feeds = {"x:0"};
  make.fetches = {"z:0"};
  make.request_id = 4710;
  const auto make_it = [&] {
    return Wait<int64_t>([&](auto done) { master_->MakeCallable({}, make, std::move(done)); });
  };
  RunCallableRequest step;
  step.session = session;
  step.callable = make_it().value();
  EXPECT_EQ(make_it().value(), step.callable);
  step.feeds = {Tensor::Scalar<float>(1)};
  step.request_id = 4713;
  const auto run = [&](const RunCallableRequest& request) {
    return Wait<RunCallableReply>(
        [&](auto done) { master_->RunCallable({}, request, std::move(done)); });
  };
  EXPECT_TRUE(run(step).ok());
  const int runs = Count("RunGraph");
  const auto again = run(step);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->fetches.at(0).scalar<float>(), 7);
  EXPECT_EQ(Count("RunGraph"), runs);
  RunCallableRequest other = step;
  other.callable = 77;
  EXPECT_THAT(Text(run(other)),
              HasSubstr("ABORTED: The same RunCallable (Master) request was received twice. "));
  RunStepRequest whole = Step(session, {"x:0"}, {"z:0"});
  whole.request_id = step.request_id;
  EXPECT_THAT(Text(Run(whole)),
              HasSubstr("ABORTED: The same RunStep (Master) request was received twice. "));
}

TEST_F(MasterTest, ACallableSentAgainJoinsTheOneUnderWay) {
  const std::string session = Create().value();
  MakeCallableRequest make;
  make.session = session;
  make.targets = {"go"};
  make.options.timeout = absl::Seconds(30);
  RunCallableRequest step;
  step.session = session;
  step.callable =
      Wait<int64_t>([&](auto done) { master_->MakeCallable({}, make, std::move(done)); }).value();
  step.request_id = 99;
  workers_[kPs]->run = [](const RunGraphRequest&) { return std::nullopt; };
  CallOptions lost;
  lost.cancellation = std::make_shared<Cancellation>();
  std::vector<std::string> replies;
  const auto record = [&](absl::StatusOr<RunCallableReply> r) { replies.push_back(Text(r)); };
  master_->RunCallable(lost, step, record);
  Advance(absl::Seconds(1));
  lost.cancellation->Cancel(absl::UnavailableError("Socket closed"));
  Advance(absl::Seconds(1));
  EXPECT_THAT(replies, ElementsAre("UNAVAILABLE: Socket closed"));
  master_->RunCallable({}, step, record);
  scheduler_->RunUntil([&] { return replies.size() == 2; });
  EXPECT_EQ(replies[1], "DEADLINE_EXCEEDED: Deadline Exceeded");
  EXPECT_EQ(Count("RunGraph"), 1);
  EXPECT_EQ(master_->counts().sessions, 1);
}

TEST_F(MasterTest, SessionsOfVanishedClientsAreClosed) {
  const std::string quiet = Create().value();
  const std::string lost = Create().value();
  workers_[kPs]->run = [](const RunGraphRequest&) { return std::nullopt; };
  const auto vanish = [&](const std::string& session) {
    CallOptions call;
    call.cancellation = std::make_shared<Cancellation>();
    master_->RunStep(call, Step(session, {}, {}, {"go"}), [](absl::StatusOr<RunStepReply>) {});
    Advance(absl::Seconds(1));
    call.cancellation->Cancel(absl::UnavailableError("gone"));
  };
  vanish(lost);
  Advance(absl::Seconds(5));
  // It comes back in time.
  EXPECT_TRUE(Wait<ListDevicesReply>([&](auto done) {
                master_->ListDevices({}, lost, std::move(done));
              }).ok());
  Advance(absl::Seconds(60));
  EXPECT_EQ(master_->counts().sessions, 2);
  vanish(lost);
  Advance(absl::Seconds(11));
  EXPECT_EQ(master_->counts().sessions, 1);
  EXPECT_EQ(Text(Run(Step(lost, {}, {}, {"go"}))),
            absl::StrCat("ABORTED: Session ", lost, " is not found."));
  Advance(absl::Hours(24));
  EXPECT_EQ(master_->counts().sessions, 1);
}

TEST_F(MasterTest, PartialRunsTakeTheirPartsInTurn) {
  const std::string session =
      Create({}, [](Graph& graph) {
        return AddNodes(graph, [](const Scope& s) {
          const auto fed = [&s](const char* name) {
            return s.Op("Placeholder", {}, {{"dtype", DType::kFloat}}, name);
          };
          const Output a = fed("a");
          const Output r1 = s.Op("Add", {a, fed("b")}, {}, "r1");
          s.Op("Mul", {r1, fed("d")}, {}, "r2");
        });
      }).value();
  const auto set_up = [&] {
    PartialRunSetupRequest request{session, {"a:0", "b:0", "d:0"}, {"r1:0", "r2:0"}, {}, 0};
    return Wait<std::string>(
        [&](auto done) { master_->PartialRunSetup({}, request, std::move(done)); });
  };
  const auto part = [&](const std::string& handle, std::vector<std::string> feeds,
                        std::vector<std::string> fetches) {
    RunStepRequest request = Step(session, std::move(feeds), std::move(fetches));
    request.partial_run = handle;
    return Run(std::move(request));
  };
  EXPECT_EQ(set_up().value(), "0");
  EXPECT_TRUE(part("0", {"a:0", "b:0"}, {"r1:0"}).ok());
  const RunGraphRequest first = workers_[kWorker]->runs.at(0);
  EXPECT_TRUE(first.is_partial && !first.is_last_partial);
  EXPECT_EQ(Count("CleanupGraph"), 0);
  EXPECT_EQ(Text(part("0", {"a:0"}, {})), "INVALID_ARGUMENT: The feed a:0 has already been fed.");
  EXPECT_EQ(Text(part("0", {"q:0"}, {})),
            "INVALID_ARGUMENT: The feed q:0 was not specified in partial_run_setup.");
  EXPECT_TRUE(part("0", {"d:0"}, {"r2:0"}).ok());
  EXPECT_TRUE(workers_[kWorker]->runs.at(1).is_last_partial);
  EXPECT_EQ(workers_[kWorker]->runs[1].step_id, first.step_id);
  EXPECT_EQ(Count("CleanupGraph"), 1);
  EXPECT_EQ(Text(part("0", {"d:0"}, {"r2:0"})),
            "INVALID_ARGUMENT: Must run PartialRunSetup before performing partial runs");
  EXPECT_EQ(set_up().value(), "1");
  EXPECT_EQ(Text(part("1", {"a:0"}, {"r2:0"})),
            "INVALID_ARGUMENT: Fetch d:0 can't be computed from the feeds that have been fed so "
            "far.");
}

TEST_F(MasterTest, CallablesConnectTensors) {
  const std::string session = Create().value();
  MakeCallableRequest make;
  make.session = session;
  make.fetches = {"z:0", "z:0"};
  make.connections = {{"c:0", "x:0"}};
  const auto made = [&] {
    return Wait<int64_t>([&](auto done) { master_->MakeCallable({}, make, std::move(done)); });
  };
  EXPECT_EQ(Text(made()), "NOT_FOUND: FetchOutputs node c:0: not found");
  make.connections = {};
  make.feeds = {"x:0"};
  EXPECT_EQ(made().value(), 0);
  EXPECT_EQ(Count("RegisterGraph"), 2);
  const auto run = [&](int64_t callable, int feeds) {
    RunCallableRequest request;
    request.session = session;
    request.callable = callable;
    for (int i = 0; i < feeds; ++i) request.feeds.push_back(Tensor::Scalar<float>(1));
    return Wait<RunCallableReply>(
        [&](auto done) { master_->RunCallable({}, std::move(request), std::move(done)); });
  };
  EXPECT_THAT(run(0, 1)->fetches, SizeIs(2));
  EXPECT_EQ(run(0, 0).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Text(run(77, 1)), "INVALID_ARGUMENT: No such callable handle: 77");
  make.has_feed_or_fetch_devices = true;
  EXPECT_EQ(made().status().code(), absl::StatusCode::kUnimplemented);
}

TEST_F(MasterTest, TracesAskForTransfers) {
  const std::string session = Create().value();
  Log();
  RunStepRequest step = Step(session, {}, {}, {"go"});
  step.options.trace = true;
  EXPECT_TRUE(Run(step).ok());
  EXPECT_THAT(Log(),
              ElementsAre(absl::StrCat("RegisterGraph ", kPs), absl::StrCat("Logging on ", kPs),
                          absl::StrCat("RunGraph ", kPs), absl::StrCat("Logging off ", kPs),
                          absl::StrCat("Logging fetch ", kPs), absl::StrCat("CleanupGraph ", kPs)));
  EXPECT_TRUE(workers_[kPs]->runs.at(0).record_timeline);
}

TEST_F(MasterTest, ResetCleansFirstAndClosesAll) {
  const std::string session = Create().value();
  Log();
  EXPECT_TRUE(Wait<Empty>([&](auto done) { master_->Reset({}, {"c"}, {}, std::move(done)); }).ok());
  const std::vector<std::string> log = Log();
  ASSERT_THAT(log, SizeIs(4));
  EXPECT_TRUE(absl::StartsWith(log[0], "CleanupAll") && absl::StartsWith(log[1], "CleanupAll"));
  EXPECT_EQ(Text(Run(Step(session, {}, {}, {"go"}))),
            absl::StrCat("ABORTED: Session ", session, " is not found."));
}

TEST_F(MasterTest, StoppingEndsEverything) {
  const std::string session = Create().value();
  workers_[kPs]->run = [](const RunGraphRequest&) { return std::nullopt; };
  std::optional<absl::StatusOr<RunStepReply>> reply;
  master_->RunStep({}, Step(session, {}, {}, {"go"}),
                   [&](absl::StatusOr<RunStepReply> r) { reply = std::move(r); });
  Advance(absl::Seconds(1));
  bool over = false;
  master_->Stop(absl::UnavailableError("bye"), [&](absl::Status) { over = true; });
  EXPECT_TRUE(scheduler_->RunUntil([&] { return over; }));
  ASSERT_TRUE(reply.has_value());
  EXPECT_EQ(Text(*reply), "UNAVAILABLE: bye");
  EXPECT_EQ(Text(Create()), "UNAVAILABLE: bye");
}

// What a thread that fills a queue does is no step of the training loop beside it.
TEST_F(MasterTest, StepsThatOnlyFillQueuesAreNotCounted) {
  const auto with_queue = [](Graph& graph) -> absl::Status {
    RETURN_IF_ERROR(SmallGraph(graph));
    const Scope scope(graph);
    const std::vector<DType> types = {DType::kFloat};
    const Output queue = scope.Op("FIFOQueueV2", {}, {{"component_types", types}}, "queue");
    const std::vector<Output> values = {scope.ConstScalar<float>(1)};
    scope.Add("QueueEnqueueV2", {queue, values}, {{"Tcomponents", types}}, "enqueue");
    scope.Op("QueueSizeV2", {queue}, {}, "size");
    return scope.status();
  };
  const std::string session = Create({}, with_queue).value();
  ASSERT_TRUE(Run(Step(session, {}, {}, {"enqueue"})).ok());
  ASSERT_TRUE(Run(Step(session, {}, {}, {"enqueue"})).ok());
  EXPECT_EQ(master_->counts().steps_run, 0);
  ASSERT_TRUE(Run(Step(session, {}, {}, {"enqueue", "size"})).ok());
  EXPECT_EQ(master_->counts().steps_run, 1);
  ASSERT_TRUE(Run(Step(session, {}, {}, {"enqueue"})).ok());
  ASSERT_TRUE(Close(session).ok());
  EXPECT_EQ(master_->counts().steps_run, 1);
}

}  // namespace
}  // namespace muster
