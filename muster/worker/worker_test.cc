#include "muster/worker/worker.h"

#include "muster/worker/worker_test.h"

namespace muster {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST_F(InProcessTest, WhatIsInsideOfALoopIsNotWaitedFor) {
  StartCluster(1);
  auto graph = std::make_unique<Graph>();
  const Scope s = Scope(*graph).WithDevice(Cpu(0));
  const Output enter = s.Op("Enter", {Number(s, 1, "x")}, {{"frame_name", "f"}}, "enter");
  Send(s, enter, 0, 0, "enter:0", true);
  EXPECT_EQ(s.status(), absl::OkStatus());
  const absl::Status status = Register(0, std::move(graph)).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("Tensor 'enter:0' cannot be fetched: it is inside of the loop 'f'"));
}

TEST_F(InProcessTest, ValuesCrossTasksAndComeBackUnderTheirKeys) {
  StartCluster(2);
  const std::string producer = RegisterOn(0, [&](const Scope& s) {
    Send(s, s.Op("Mul", {Recv(s, 0, 0, "x:0", true), Number(s, 3, "three")}, {}, "y"), 0, 1, "y");
  });
  const std::string consumer = RegisterOn(1, [&](const Scope& s) {
    Send(s, s.Op("Neg", {Recv(s, 0, 1, "y")}, {}, "z"), 1, 1, "z:0", true);
  });
  EXPECT_EQ(producer, "0000000000000001");
  for (int64_t step = 1; step < 20; ++step) {
    RunGraphRequest second = Request(consumer, step);
    second.recv_keys = {Key(1, 1, "z:0")};
    const auto received = Run(1, std::move(second));
    RunReady();
    EXPECT_FALSE(received.has_value());
    RunGraphRequest first = Request(producer, step);
    first.send = {{Key(0, 0, "x:0"), Tensor::Scalar<float>(static_cast<float>(step))}};
    const auto sent = Run(0, std::move(first));
    RunReady();
    EXPECT_EQ(sent.status(), absl::OkStatus());
    EXPECT_EQ(Only(received), -3.0f * static_cast<float>(step));
    Cleanup(0, step);
    Cleanup(1, step);
  }
  EXPECT_EQ(workers_[0]->counts().steps_run, 19);
  EXPECT_EQ(workers_[0]->counts().steps, 0);
  EXPECT_EQ(workers_[0]->counts().sessions, 1);
  EXPECT_EQ(workers_[0]->counts().graphs, 1);
}

TEST_F(InProcessTest, DeadValuesCrossTasks) {
  StartCluster(2);
  const std::string producer = RegisterOn(0, [&](const Scope& s) {
    const Output p =
        s.Op("Const", {}, {{"dtype", DType::kBool}, {"value", Tensor::Scalar(false)}}, "p");
    const Output both = s.Op("Switch", {Number(s, 1, "one"), p}, {}, "switch");
    Send(s, both.node->output(1), 0, 1, "dead");
    Send(s, both.node->output(0), 0, 1, "live");
  });
  const std::string consumer = RegisterOn(1, [&](const Scope& s) {
    Send(s, s.Op("Neg", {Recv(s, 0, 1, "dead")}, {}, "a"), 1, 1, "a:0", true);
    Send(s, s.Op("Neg", {Recv(s, 0, 1, "live")}, {}, "b"), 1, 1, "b:0", true);
  });
  RunGraphRequest live = Request(consumer, 1);
  live.recv_keys = {Key(1, 1, "b:0")};
  const auto received = Run(1, std::move(live));
  Run(0, Request(producer, 1));
  RunReady();
  EXPECT_EQ(Only(received), -1.0f);
  RunGraphRequest dead = Request(consumer, 2);
  dead.recv_keys = {Key(1, 1, "a:0")};
  const auto failed = Run(1, std::move(dead));
  Run(0, Request(producer, 2));
  RunReady();
  EXPECT_TRUE(absl::IsInternal(failed.status()));
  EXPECT_THAT(std::string(failed.status().message()),
              StartsWith("Failed to fetch outputs for step 2. (Original"));
}

TEST_F(InProcessTest, AnErrorFreesThePeers) {
  StartCluster(3);
  const std::string producer = RegisterOn(0, [&](const Scope& s) { Send(s, Bad(s), 0, 1, "y"); });
  const std::string middle = RegisterOn(
      1, [&](const Scope& s) { Send(s, s.Op("Neg", {Recv(s, 0, 1, "y")}, {}, "z"), 1, 2, "z"); });
  const std::string last =
      RegisterOn(2, [&](const Scope& s) { s.Op("Neg", {Recv(s, 1, 2, "z")}, {}, "w"); });
  const auto third = Run(2, Request(last, 1));
  const auto second = Run(1, Request(middle, 1));
  RunReady();
  const auto first = Run(0, Request(producer, 1));
  RunReady();
  EXPECT_TRUE(absl::IsFailedPrecondition(first.status()));
  EXPECT_THAT(std::string(first.status().message()),
              HasSubstr("Attempting to use uninitialized value bad"));
  EXPECT_FALSE(IsDerived(first.status()));
  for (const auto& follower : {second, third}) {
    EXPECT_TRUE(absl::IsFailedPrecondition(follower.status()));
    EXPECT_TRUE(IsDerived(follower.status()));
  }
}

TEST_F(InProcessTest, CancellingARunEndsItsReceivesAtOnceAndItsPeers) {
  StartCluster(2);
  const std::string consumer = RegisterOn(
      1, [&](const Scope& s) { Send(s, s.Op("Neg", {Recv(s, 0, 1, "y")}, {}, "z"), 1, 0, "z"); });
  CallOptions options;
  options.cancellation = std::make_shared<Cancellation>();
  const auto run = Run(1, Request(consumer, 1), options);
  const auto peer = Ask(1, 1, Key(1, 0, "z"));
  RunReady();
  EXPECT_FALSE(run.has_value());
  options.cancellation->Cancel(absl::CancelledError("enough"));
  RunReady();
  EXPECT_TRUE(absl::IsCancelled(run.status()));
  EXPECT_TRUE(IsDerived(run.status()));
  EXPECT_TRUE(absl::IsCancelled(peer.status()));
  EXPECT_THAT(std::string(peer.status().message()),
              HasSubstr("RecvAsync is cancelled.\n\t [[{{node recv_y}}]]"));
  EXPECT_TRUE(IsDerived(peer.status()));
}

TEST_F(InProcessTest, ACancelledReceiveAbortsTheStepAfterAWhile) {
  StartCluster(2);
  const std::string blocked = RegisterOn(0, [&](const Scope& s) { Recv(s, 1, 0, "never"); });
  CallOptions options;
  options.cancellation = std::make_shared<Cancellation>();
  // Before the step has started: nothing but the call itself ends.
  const auto early = Ask(0, 5, Key(0, 1, "x"), options);
  options.cancellation->Cancel(absl::CancelledError("gone"));
  RunReady();
  EXPECT_EQ(early.status(), absl::CancelledError("gone"));

  options.cancellation = std::make_shared<Cancellation>();
  const auto run = Run(0, Request(blocked, 5));
  const auto waiting = Ask(0, 5, Key(0, 1, "x"), options);
  const auto other = Ask(0, 5, Key(0, 1, "y"));
  RunReady();
  options.cancellation->Cancel(absl::CancelledError("gone"));
  RunReady();
  EXPECT_EQ(waiting.status(), absl::CancelledError("gone"));
  EXPECT_FALSE(run.has_value());
  RunAll();
  EXPECT_TRUE(absl::IsAborted(run.status()));
  EXPECT_THAT(std::string(other.status().message()),
              HasSubstr("Step 5 cancelled.  Cancelling rendezvous."));
}

TEST_F(InProcessTest, ReceivesMayComeEarlyOrTooLate) {
  StartCluster(2);
  const std::string producer =
      RegisterOn(0, [&](const Scope& s) { Send(s, Number(s, 4, "four"), 0, 1, "y"); });
  const auto early = Ask(0, 1, Key(0, 1, "y"));
  EXPECT_FALSE(early.has_value());
  Run(0, Request(producer, 1));
  RunReady();
  ASSERT_EQ(early.status(), absl::OkStatus());
  EXPECT_EQ((*early)->value.tensor.scalar<float>(), 4.0f);
  EXPECT_FALSE((*early)->require_ack);
  const auto pending = Ask(0, 1, Key(0, 1, "other"));
  Cleanup(0, 1);
  EXPECT_EQ(pending.status(), Derived(absl::AbortedError("Cleanup 1")));
  EXPECT_EQ(Ask(0, 1, Key(0, 1, "y")).status(), Derived(absl::AbortedError("Cleanup 1")));
  Cleanup(0, 77);  // unknown
}

TEST_F(InProcessTest, ReceivesAreCheckedInTheOrderOfTheProtocol) {
  StartCluster(2);
  const std::string key = Key(0, 1, "x");
  EXPECT_EQ(Ask(0, 1, "abc").status(), InvalidArgument("Invalid  rendezvous key: abc"));
  const std::string nine = absl::StrCat(Cpu(0, 9), ";1;", Cpu(1), ";x;0:0");
  EXPECT_EQ(Ask(0, 1, nine).status(), InvalidArgument("/device:CPU:9 unknown device."));
  const std::string other_life = absl::StrCat(Cpu(0), ";0000000000000002;", Cpu(1), ";x;0:0");
  const auto restarted = Ask(0, 1, other_life);
  EXPECT_TRUE(absl::IsAborted(restarted.status()));
  EXPECT_EQ(restarted.status().message(),
            absl::StrCat("RecvTensor expects a different device incarnation: 2 vs. ",
                         static_cast<uint64_t>(Incarnation(0)),
                         ". Your worker job (\"/job:w/replica:0/task:0\") was probably restarted. "
                         "Check your worker job for the reason why it was restarted."));
  EXPECT_TRUE(restarted.status().GetPayload(kRestartedPayload).has_value());
  const auto first = Ask(0, 1, key, {}, 42);
  EXPECT_FALSE(first.has_value());
  EXPECT_EQ(Ask(0, 1, key, {}, 42).status(),
            absl::AbortedError(absl::StrCat("The same RecvTensor (GrpcWorker) request was received "
                                            "twice. step_id: 1 rendezvous_key: \"",
                                            key, "\" request_id: 42")));
  // The task of the key matters once the step has a session.
  const std::string elsewhere =
      absl::StrFormat("%s;%016x;%s;x;0:0", Cpu(1), static_cast<uint64_t>(Incarnation(0)), Cpu(0));
  const auto wrong = Ask(0, 1, elsewhere);
  EXPECT_FALSE(wrong.has_value());
  Run(0, Request(RegisterOn(0, [&](const Scope& s) { Recv(s, 1, 0, "never"); }), 1));
  EXPECT_TRUE(absl::IsInvalidArgument(wrong.status()));
  EXPECT_FALSE(first.has_value());
}

TEST_F(InProcessTest, CallsNameWhatIsMissing) {
  StartCluster(1);
  EXPECT_EQ(NewSession(0, ""), InvalidArgument("Session must be non-empty."));
  EXPECT_EQ(NewSession(0), absl::OkStatus());  // again
  RunGraphRequest request = Request("00ff", 1);
  request.request_id = 9;
  EXPECT_EQ(Run(0, request).status(), absl::AbortedError("Graph handle is not found: 00ff"));
  EXPECT_THAT(std::string(Run(0, request).status().message()),
              StartsWith("The same RunGraph (Worker) request was received twice."));
  request.request_id = 0;
  request.session = "dead";
  const absl::Status unknown = Run(0, request).status();
  EXPECT_EQ(unknown, PossiblyRestarted(absl::AbortedError(
                         "Session handle is not found: dead. Possibly this worker "
                         "(\"/job:w/replica:0/task:0\") just restarted.")));
  Answered<Empty> gone;
  workers_[0]->DeregisterGraph({}, std::string(kSession), true, "00ff", gone.done());
  EXPECT_EQ(gone.status().message(),
            "Graph handle is not found: 00ff. Possibly, this worker just restarted.");
  for (const auto& [device, text] : std::vector<std::pair<std::string, std::string>>{
           {"", "Node 'n' is missing a device specification"},
           {"/job:w/task:0", "/job:w/task:0 unknown device."},
           {Cpu(3), "/job:w/replica:0/task:3/device:CPU:0 unknown device."}}) {
    auto graph = std::make_unique<Graph>();
    Number(Scope(*graph), 1, "n").node->set_device(device);
    EXPECT_EQ(Register(0, std::move(graph)).status(), InvalidArgument(text));
  }
  Answered<Empty> deleted;
  workers_[0]->DeleteWorkerSession({}, "nobody", deleted.done());
  EXPECT_EQ(deleted.status(), absl::OkStatus());
}

TEST_F(InProcessTest, PartialRuns) {
  StartCluster(1);
  const std::string graph = RegisterOn(0, [&](const Scope& s) {
    const Output a = Recv(s, 0, 0, "a:0", true);
    const Output b = s.Op("Neg", {a}, {}, "b");
    Send(s, b, 0, 0, "b:0", true);
    Send(s, s.Op("Mul", {b, Recv(s, 0, 0, "c:0", true)}, {}, "d"), 0, 0, "d:0", true);
  });
  const auto part = [&](int64_t step, std::vector<NamedTensor> send, std::vector<std::string> recv,
                        bool last) {
    RunGraphRequest request = Request(graph, step);
    request.is_partial = true;
    request.is_last_partial = last;
    request.send = std::move(send);
    request.recv_keys = std::move(recv);
    return Run(0, std::move(request));
  };
  EXPECT_EQ(part(1, {}, {}, false).status(), absl::OkStatus());
  const auto first =
      part(1, {{Key(0, 0, "a:0"), Tensor::Scalar<float>(2)}}, {Key(0, 0, "b:0")}, false);
  RunReady();
  EXPECT_EQ(Only(first), -2);
  const auto last =
      part(1, {{Key(0, 0, "c:0"), Tensor::Scalar<float>(5)}}, {Key(0, 0, "d:0")}, true);
  RunReady();
  EXPECT_EQ(Only(last), -10);
  Cleanup(0, 1);
  // An error is what every later part hears.
  const auto waiting = part(2, {}, {Key(0, 0, "b:0")}, false);
  const auto bad = part(2, {{Key(0, 0, "a:0"), Tensor::Scalar<int32_t>(2)}}, {}, true);
  RunReady();
  EXPECT_FALSE(waiting.status().ok());
  EXPECT_FALSE(IsDerived(waiting.status())) << waiting.status();
  EXPECT_EQ(waiting.status(), bad.status());
}

TEST_F(InProcessTest, ARestartedPeerIsNoticed) {
  StartCluster(2);
  const std::string consumer =
      RegisterOn(1, [&](const Scope& s) { s.Op("Neg", {Recv(s, 0, 1, "y")}, {}, "z"); });
  network_->Close(Address(0));
  const auto down = Run(1, Request(consumer, 1));
  RunReady();
  EXPECT_TRUE(absl::IsUnavailable(down.status()));
  EXPECT_FALSE(IsDerived(down.status()));
  workers_[0]->Stop(absl::UnavailableError("killed"));
  StartWorker(OptionsOf(0));
  const auto restarted = Run(1, Request(consumer, 2));
  RunReady();
  EXPECT_TRUE(absl::IsAborted(restarted.status()));
  EXPECT_THAT(std::string(restarted.status().message()),
              HasSubstr("expects a different device incarnation"));
}

TEST_F(InProcessTest, RepliesAreKeptUntilTheyAreAcknowledged) {
  StartCluster(2);
  WorkerOptions options = OptionsOf(0);
  options.cache_replies = true;
  StartWorker(std::move(options));
  EXPECT_EQ(NewSession(0), absl::OkStatus());
  const std::string producer =
      RegisterOn(0, [&](const Scope& s) { Send(s, Number(s, 4, "four"), 0, 1, "y"); });
  const auto first = Ask(0, 1, Key(0, 1, "y"), {}, 42);
  const auto again = Ask(0, 1, Key(0, 1, "y"), {}, 42);
  Run(0, Request(producer, 1));
  RunReady();
  const auto late = Ask(0, 1, Key(0, 1, "y"), {}, 42);
  for (const auto& answer : {first, again, late}) {
    ASSERT_EQ(answer.status(), absl::OkStatus());
    EXPECT_EQ((*answer)->value.tensor.scalar<float>(), 4.0f);
    EXPECT_TRUE((*answer)->require_ack);
  }
  Answered<Empty> marked;
  workers_[0]->MarkRecvFinished({}, 42, marked.done());
  EXPECT_EQ(marked.status(), absl::OkStatus());
  EXPECT_THAT(std::string(Ask(0, 1, Key(0, 1, "y"), {}, 42).status().message()),
              HasSubstr("received twice"));
}

TEST_F(InProcessTest, TracesAndTransfersAreRecorded) {
  StartCluster(2);
  const std::string producer =
      RegisterOn(0, [&](const Scope& s) { Send(s, Number(s, 4, "four"), 0, 1, "y"); });
  const std::string consumer =
      RegisterOn(1, [&](const Scope& s) { s.Op("Neg", {Recv(s, 0, 1, "y")}, {}, "z"); });
  Answered<LoggingReply> on;
  workers_[1]->Logging({}, {true, false, false, {}}, on.done());
  RunGraphRequest request = Request(consumer, 1);
  request.record_timeline = true;
  request.record_partition_graphs = true;
  const auto run = Run(1, std::move(request));
  Run(0, Request(producer, 1));
  RunReady();
  ASSERT_EQ(run.status(), absl::OkStatus());
  EXPECT_THAT((*run)->step_stats, HasSubstr("recv_y = _Recv()"));
  EXPECT_EQ((*run)->partition_graphs.size(), 1u);
  Answered<LoggingReply> log;
  workers_[1]->Logging({}, {false, false, false, {1}}, log.done());
  ASSERT_EQ((*log)->steps.size(), 1u);
  EXPECT_EQ((*log)->steps[0].id, 1);
  EXPECT_THAT((*log)->steps[0].step_stats,
              HasSubstr(absl::StrCat("Mb/s] y from ", Cpu(0), " to ", Cpu(1))));
}

TEST_F(InProcessTest, CleanupWhileTheStepRuns) {
  StartCluster(1);
  const std::string blocked = RegisterOn(0, [&](const Scope& s) { Recv(s, 0, 0, "never"); });
  const auto running = Run(0, Request(blocked, 1));
  RunReady();
  EXPECT_EQ(workers_[0]->counts().steps, 1);
  Cleanup(0, 1);
  RunReady();
  EXPECT_TRUE(absl::IsAborted(running.status()));
  EXPECT_TRUE(IsDerived(running.status()));
  EXPECT_EQ(workers_[0]->counts().steps, 0);
}

TEST_F(InProcessTest, AStepRunsOneGraphOfATask) {
  StartCluster(1);
  const std::string graph =
      RegisterOn(0, [&](const Scope& s) { Send(s, Number(s, 3, "n"), 0, 0, "n:0", true); });
  Run(0, Request(graph, 5));
  RunReady();
  RunGraphRequest other = Request(graph, 5);
  EXPECT_EQ(Run(0, other).status(), Internal("Step 5 has run a graph on this worker already"));
  other = Request(graph, 5);
  other.is_partial = true;
  EXPECT_EQ(Run(0, other).status(), Internal("Step 5 has run a graph on this worker already"));
  // Once it is over, its id means another step.
  Cleanup(0, 5);
  const auto again = Run(0, Request(graph, 5));
  RunReady();
  EXPECT_EQ(again.status(), absl::OkStatus());
}

TEST_F(InProcessTest, SeveralDevicesOfATask) {
  StartCluster(1);
  WorkerOptions options = OptionsOf(0);
  options.devices.cpu_devices = 2;
  StartWorker(std::move(options));
  EXPECT_EQ(NewSession(0), absl::OkStatus());
  auto graph = std::make_unique<Graph>();
  const Scope first = Scope(*graph).WithDevice(Cpu(0));
  const Scope second = Scope(*graph).WithDevice(Cpu(0, 1));
  const Output x = Recv(first, 0, 0, "x:0", true);
  Send(first, second.Op("Neg", {x}, {}, "y"), 0, 0, "y:0", true);
  const auto handle = Register(0, std::move(graph));
  ASSERT_EQ(handle.status(), absl::OkStatus());
  RunGraphRequest request = Request(*handle, 1);
  request.send = {{Key(0, 0, "x:0"), Tensor::Scalar<float>(8)}};
  request.recv_keys = {Key(0, 0, "y:0")};
  const auto run = Run(0, std::move(request));
  RunReady();
  EXPECT_EQ(Only(run), -8);
}

TEST_F(InProcessTest, AWorkerThatRefusesNewStepsFinishesOldOnes) {
  StartCluster(2);
  const std::string waits = RegisterOn(0, [&](const Scope& s) { Recv(s, 1, 0, "late"); });
  const std::string sends =
      RegisterOn(1, [&](const Scope& s) { Send(s, s.ConstScalar<float>(1), 1, 0, "late"); });
  const auto running = Run(0, Request(waits, 1));
  RunReady();
  const absl::Status reason = absl::UnavailableError("task 0 is being stopped");
  workers_[0]->Refuse(reason);
  EXPECT_EQ(Run(0, Request(waits, 2)).status(), reason);
  EXPECT_EQ(NewSession(0, "late"), reason);
  EXPECT_FALSE(running.has_value());
  EXPECT_EQ(workers_[0]->counts().steps, 1);
  const auto sent = Run(1, Request(sends, 1));
  RunAll();
  EXPECT_EQ(sent.status(), absl::OkStatus());
  EXPECT_EQ(running.status(), absl::OkStatus());
  EXPECT_EQ(workers_[0]->counts().steps, 0);
}

TEST_F(InProcessTest, AStoppedWorkerEndsItsStepsAndRefusesCalls) {
  StartCluster(1);
  const auto running =
      Run(0, Request(RegisterOn(0, [&](const Scope& s) { Recv(s, 0, 0, "never"); }), 1));
  const auto early = Ask(0, 2, Key(0, 0, "x"));
  RunReady();
  workers_[0]->Stop(absl::UnavailableError("shutting down"));
  RunReady();
  EXPECT_TRUE(absl::IsUnavailable(running.status()));
  EXPECT_TRUE(absl::IsUnavailable(early.status()));
  EXPECT_EQ(NewSession(0, "late"), absl::UnavailableError("shutting down"));
}

}  // namespace
}  // namespace muster
