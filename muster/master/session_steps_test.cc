#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/master/master_fixture_test.h"
#include "muster/transport/wire/status_proto.h"

namespace muster {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using testing::UnorderedElementsAre;

using SessionStepsTest = MasterTest;

TEST_F(SessionStepsTest, StepsAreSpreadOverTheTasks) {
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
  // A step that only one task runs is sent to no other.
  Log();
  EXPECT_TRUE(Run(Step(session, {}, {}, {"go"})).ok());
  EXPECT_EQ(Count(absl::StrCat("RunGraph ", kWorker)), 0);
}

TEST_F(SessionStepsTest, RequestsAreCheckedInTensorFlowsWords) {
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

TEST_F(SessionStepsTest, TheRootErrorIsReportedAndTheOthersCancelled) {
  const std::string session = Create().value();
  workers_[kPs]->run = [](const RunGraphRequest&) {
    return absl::StatusOr<RunGraphReply>(InvalidArgument("bad\n\t [[{{node y}}]]"));
  };
  workers_[kWorker]->run = [](const RunGraphRequest&) { return std::nullopt; };
  EXPECT_EQ(Text(Run(Step(session, {"x:0"}, {"z:0"}))),
            "INVALID_ARGUMENT: From /job:ps/replica:0/task:0:\nbad\n\t [[{{node y}}]]");
  EXPECT_EQ(Count("CleanupGraph"), 2);
  // A derived error alone cancels no other part.
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

TEST_F(SessionStepsTest, StepsEndWithTimeoutsClientsAndSessions) {
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

TEST_F(SessionStepsTest, StepsSentAgainRunOnce) {
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

TEST_F(SessionStepsTest, AStepSentAgainJoinsTheOneUnderWay) {
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

TEST_F(SessionStepsTest, CallablesSentAgainRunOnce) {
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

TEST_F(SessionStepsTest, ACallableSentAgainJoinsTheOneUnderWay) {
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

TEST_F(SessionStepsTest, PartialRunsTakeTheirPartsInTurn) {
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

TEST_F(SessionStepsTest, CallablesConnectTensors) {
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

TEST_F(SessionStepsTest, TracesAskForTransfers) {
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

TEST_F(SessionStepsTest, StepsThatOnlyFillQueuesAreNotCounted) {
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
