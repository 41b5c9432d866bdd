#include "muster/transport/watch/watched_peers.h"

#include <list>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/base/cancel_callback.h"
#include "muster/transport/api/forwarding.h"
#include "muster/transport/api/peer.h"

namespace muster {
namespace {

using testing::HasSubstr;

// A task that answers questions about itself, while it may, and nothing else.
class FakeTask : public ForwardingWorker<FakeTask>, public PeerApi {
 public:
  void GetStatus(CallOptions, CallDone<std::vector<DeviceAttributes>> done) override {
    ++statuses;
    if (!answers) return;
    DeviceAttributes device;
    device.incarnation = incarnation;
    std::move(done)(std::vector<DeviceAttributes>{device});
  }
  void Hello(CallOptions, PeerInfo, CallDone<PeerInfo> done) override {
    ++hellos;
    if (!refusal.empty()) return std::move(done)(absl::UnavailableError(refusal));
    if (is_stock) return std::move(done)(absl::UnimplementedError(""));
    if (!answers) return unanswered.push_back(std::move(done));
    PeerInfo info;
    info.incarnation = incarnation;
    std::move(done)(info);
  }
  void Probe(absl::AnyInvocable<void(std::string) &&> done) override { std::move(done)(""); }
  void Renew() override {
    ++renewals;
    if (renewing_helps) answers = true;
  }
  template <typename Reply, typename Call>
  void Forward(CallOptions options, CallDone<Reply> done, Call) {
    if (options.cancellation == nullptr) return;
    auto shared = std::make_shared<CallDone<Reply>>(std::move(done));
    finish = [shared](absl::Status status) {
      if (!*shared) return;
      auto end = std::exchange(*shared, nullptr);
      status.ok() ? std::move(end)(Reply()) : std::move(end)(std::move(status));
    };
    on_cancel.emplace_back().Start(options.cancellation, [shared](const absl::Status& reason) {
      if (*shared) std::exchange(*shared, nullptr)(reason);
    });
  }
  bool answers = true;
  bool is_stock = false;
  std::vector<CallDone<PeerInfo>> unanswered;
  std::string refusal;  // what a connection to it ends with; empty: none does
  uint64_t incarnation = 7;
  int hellos = 0;
  int statuses = 0;
  int renewals = 0;
  int forgotten = 0;            // times that a new session got a connection of its own
  bool renewing_helps = false;  // only the connection was dead
  std::function<void(absl::Status)> finish;
  std::list<CancelCallback> on_cancel;
};

// One that answers nothing.
class FakeMaster : public ForwardingMaster<FakeMaster> {
 public:
  template <typename Reply, typename Call>
  void Forward(CallOptions options, CallDone<Reply> done, Call) {
    on_cancel.emplace_back().Start(
        options.cancellation,
        [done = std::move(done)](const absl::Status& reason) mutable { std::move(done)(reason); });
  }
  std::list<CancelCallback> on_cancel;
};

class FakeTransport : public Transport, public Peers {
 public:
  explicit FakeTransport(std::shared_ptr<FakeTask> task) : task_(std::move(task)) {}
  std::shared_ptr<Peers> Connect(const ClusterSpec&, const TaskName&,
                                 std::shared_ptr<WorkerApi>) override {
    return std::make_shared<FakeTransport>(task_);
  }
  absl::StatusOr<std::shared_ptr<MasterApi>> ConnectMaster(absl::string_view) override {
    return std::make_shared<FakeMaster>();
  }
  void ForgetMaster(absl::string_view) override { ++task_->forgotten; }
  std::vector<TaskName> Tasks() const override { return {}; }
  std::shared_ptr<WorkerApi> Worker(absl::string_view) override { return task_; }

 private:
  const std::shared_ptr<FakeTask> task_;
};

class WatchedPeersTest : public testing::Test {
 protected:
  // A call that is still open holds the peers, which hold the task.
  ~WatchedPeersTest() override {
    if (task_->finish) std::exchange(task_->finish, nullptr)(absl::CancelledError("over"));
    task_->unanswered.clear();
  }
  static constexpr char kTask[] = "/job:ps/replica:0/task:3";

  void Open(CallOptions options = {}) {
    answer_.reset();
    peers_->Worker(kTask)->RunGraph(
        std::move(options), {},
        [this](absl::StatusOr<RunGraphReply> reply) { answer_ = reply.status(); });
  }
  void RunFor(absl::Duration duration) {
    const absl::Time end = scheduler_->clock().Now() + duration;
    scheduler_->ScheduleAfter(duration, [] {});
    scheduler_->RunUntil([&] { return scheduler_->clock().Now() >= end; });
  }

  const std::unique_ptr<SimulatedScheduler> scheduler_ = SimulatedScheduler::Create(1);
  const std::shared_ptr<FakeTask> task_ = std::make_shared<FakeTask>();
  const std::unique_ptr<Transport> transport_ =
      NewWatchedTransport(std::make_unique<FakeTransport>(task_), *scheduler_, LivenessOptions());
  const std::shared_ptr<Peers> peers_ = transport_->Connect({}, {}, nullptr);
  std::optional<absl::Status> answer_;
};

TEST_F(WatchedPeersTest, AsksOnlyWhileACallIsOpen) {
  RunFor(absl::Seconds(10));
  EXPECT_EQ(task_->hellos, 0);
  Open();
  RunFor(absl::Seconds(100.5));
  EXPECT_EQ(task_->hellos, 100);
  EXPECT_FALSE(answer_.has_value());
  task_->finish(absl::InternalError("its own"));
  ASSERT_TRUE(answer_.has_value());
  EXPECT_EQ(answer_->message(), "its own");
  RunFor(absl::Seconds(10));
  EXPECT_LE(task_->hellos, 101);
  EXPECT_EQ(task_->statuses, 0);
}

TEST_F(WatchedPeersTest, SilenceFailsTheCall) {
  Open();
  RunFor(absl::Seconds(10.5));
  task_->answers = false;
  RunFor(absl::Seconds(29));
  EXPECT_FALSE(answer_.has_value());
  RunFor(absl::Seconds(3));
  ASSERT_TRUE(answer_.has_value());
  EXPECT_EQ(answer_->code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(answer_->message()), HasSubstr(kTask));
  EXPECT_THAT(std::string(answer_->message()), HasSubstr("silent for 30s"));
}

TEST_F(WatchedPeersTest, FurtherCallsToASilentTaskFailAtOnce) {
  Open();
  task_->answers = false;
  RunFor(absl::Seconds(33));
  ASSERT_TRUE(answer_.has_value());
  for (int i = 0; i < 3; ++i) {
    Open();
    ASSERT_TRUE(answer_.has_value()) << i;
    EXPECT_EQ(answer_->code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(answer_->message()), HasSubstr(kTask));
    EXPECT_THAT(std::string(answer_->message()), HasSubstr("has been silent for"));
    RunFor(absl::Seconds(20));
  }
  // It is asked all the while, and used again once it has answered.
  task_->answers = true;
  RunFor(absl::Seconds(2));
  Open();
  EXPECT_FALSE(answer_.has_value());
  RunFor(absl::Seconds(100));
  EXPECT_FALSE(answer_.has_value());
}

TEST_F(WatchedPeersTest, ADeadConnectionToALivingTaskIsLeft) {
  task_->renewing_helps = true;
  Open();
  task_->answers = false;
  RunFor(absl::Seconds(28));
  EXPECT_EQ(task_->renewals, 0);
  // Made shortly before the end, over the same connection.
  std::optional<absl::Status> late;
  peers_->Worker(kTask)->RecvTensor(
      {}, {}, [&](absl::StatusOr<RecvTensorReply> reply) { late = reply.status(); });
  RunFor(absl::Seconds(4));
  EXPECT_EQ(task_->renewals, 1);
  ASSERT_TRUE(answer_.has_value());
  EXPECT_EQ(answer_->code(), absl::StatusCode::kUnavailable);
  // The task answers over the new connection, but not what it was asked over the old one.
  Open();
  EXPECT_FALSE(answer_.has_value());
  RunFor(absl::Seconds(3));
  ASSERT_TRUE(late.has_value());
  EXPECT_EQ(late->code(), absl::StatusCode::kUnavailable);
  RunFor(absl::Minutes(10));
  EXPECT_FALSE(answer_.has_value());
  EXPECT_EQ(task_->renewals, 1);
}

TEST_F(WatchedPeersTest, ConnectionsToADeadTaskAreRenewedNowAndThen) {
  Open();
  task_->answers = false;
  RunFor(absl::Minutes(4));
  EXPECT_GE(task_->renewals, 6);
  EXPECT_LE(task_->renewals, 8);
}

TEST_F(WatchedPeersTest, NewSessionsDoNotUseAConnectionThatIsSilentOrWasIdle) {
  const auto connect = [&](absl::string_view target) { return *transport_->ConnectMaster(target); };
  const auto idle = connect("grpc://idle:1");
  const auto used = connect("grpc://used:1");
  RunFor(absl::Seconds(30));
  connect("grpc://idle:1");
  EXPECT_EQ(task_->forgotten, 0);
  used->RunStep({}, {}, [](const absl::StatusOr<RunStepReply>&) {});
  RunFor(absl::Minutes(2));
  connect("grpc://used:1");
  EXPECT_EQ(task_->forgotten, 0);
  connect("grpc://idle:1");
  EXPECT_EQ(task_->forgotten, 1);
  task_->answers = false;
  RunFor(absl::Seconds(5));
  connect("grpc://used:1");
  EXPECT_EQ(task_->forgotten, 2);
  RunFor(absl::Minutes(1));  // the step times out: while it is open it holds the connection
}

TEST_F(WatchedPeersTest, ReceiversGiveASilentTaskAMoment) {
  const auto receive = [&] {
    answer_.reset();
    peers_->Worker(kTask)->RecvTensor(
        {}, {}, [this](absl::StatusOr<RecvTensorReply> reply) { answer_ = reply.status(); });
  };
  Open();
  task_->answers = false;
  RunFor(absl::Seconds(33));
  receive();
  RunFor(absl::Seconds(3));
  EXPECT_FALSE(answer_.has_value());
  RunFor(absl::Seconds(4));
  ASSERT_TRUE(answer_.has_value());
  EXPECT_EQ(answer_->code(), absl::StatusCode::kUnavailable);
  receive();
  RunFor(absl::Seconds(3));
  task_->answers = true;
  RunFor(absl::Seconds(60));
  EXPECT_FALSE(answer_.has_value());
}

TEST_F(WatchedPeersTest, ASilentTaskIsNotAskedForEver) {
  Open();
  task_->answers = false;
  RunFor(absl::Minutes(20));
  const int hellos = task_->hellos;
  EXPECT_LT(hellos, 400);
  RunFor(absl::Hours(1));
  EXPECT_EQ(task_->hellos, hellos);
  // Nobody knows whether it is back: it is given a moment.
  Open();
  EXPECT_FALSE(answer_.has_value());
  RunFor(absl::Seconds(8));
  ASSERT_TRUE(answer_.has_value());
  EXPECT_EQ(answer_->code(), absl::StatusCode::kUnavailable);
  RunFor(absl::Hours(1));
  task_->answers = true;
  Open();
  RunFor(absl::Seconds(60));
  EXPECT_FALSE(answer_.has_value());
}

TEST_F(WatchedPeersTest, AnAnswerToAnybodyIsASignOfLife) {
  Open();
  task_->answers = false;
  RunFor(absl::Seconds(33));
  task_->answers = true;
  bool answered = false;
  peers_->Worker(kTask)->GetStatus(
      {}, [&](absl::StatusOr<std::vector<DeviceAttributes>> devices) { answered = devices.ok(); });
  EXPECT_TRUE(answered);
  Open();
  EXPECT_FALSE(answer_.has_value());
}

TEST_F(WatchedPeersTest, AReplyIsASignOfLife) {
  // As when connections break every few seconds, with the questions that are asked meanwhile.
  task_->answers = false;
  for (int i = 0; i < 20; ++i) {
    Open();
    RunFor(absl::Seconds(10));
    ASSERT_FALSE(answer_.has_value()) << i;
    task_->finish(absl::OkStatus());
    EXPECT_EQ(*answer_, absl::OkStatus());
  }
  Open();
  RunFor(absl::Seconds(33));
  EXPECT_TRUE(absl::IsUnavailable(*answer_));
}

TEST_F(WatchedPeersTest, StockTasksAreAskedForTheirStatus) {
  task_->is_stock = true;
  Open();
  RunFor(absl::Seconds(10.5));
  EXPECT_EQ(task_->hellos, 1);
  EXPECT_EQ(task_->statuses, 9);
  task_->answers = false;
  RunFor(absl::Seconds(32));
  ASSERT_TRUE(answer_.has_value());
  EXPECT_EQ(answer_->code(), absl::StatusCode::kUnavailable);
}

TEST_F(WatchedPeersTest, ARestartedTaskFailsCallsToItsEarlierLife) {
  Open();
  RunFor(absl::Seconds(3));
  task_->incarnation = 8;
  RunFor(absl::Seconds(1.5));
  ASSERT_TRUE(answer_.has_value());
  EXPECT_EQ(answer_->code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(answer_->GetPayload(kRestartedPayload).has_value());
  EXPECT_THAT(std::string(answer_->message()), HasSubstr("Re-create your session"));
  // A call to the restarted task does not fail.
  Open();
  RunFor(absl::Seconds(10));
  EXPECT_FALSE(answer_.has_value());
}

TEST_F(WatchedPeersTest, TheCallerMayCancel) {
  CallOptions options;
  options.cancellation = std::make_shared<Cancellation>();
  Open(options);
  RunFor(absl::Seconds(3));
  options.cancellation->Cancel(absl::CancelledError("enough"));
  ASSERT_TRUE(answer_.has_value());
  EXPECT_EQ(answer_->message(), "enough");
  Open(options);
  ASSERT_TRUE(answer_.has_value());
  EXPECT_EQ(answer_->message(), "enough");
}

TEST_F(WatchedPeersTest, ASilentMasterFailsWhatItsClientWaitsFor) {
  const auto master = transport_->ConnectMaster("grpc://far:2222").value();
  const auto run = [&] {
    answer_.reset();
    master->RunStep({}, {},
                    [this](absl::StatusOr<RunStepReply> reply) { answer_ = reply.status(); });
  };
  run();
  RunFor(absl::Seconds(100));
  EXPECT_FALSE(answer_.has_value());
  EXPECT_GE(task_->hellos, 99);
  task_->answers = false;
  RunFor(absl::Seconds(33));
  ASSERT_TRUE(answer_.has_value());
  EXPECT_EQ(answer_->code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(answer_->message()),
              HasSubstr("the master grpc://far:2222 has been silent for 30s"));
  run();
  ASSERT_TRUE(answer_.has_value());
  task_->answers = true;
  RunFor(absl::Seconds(2));
  run();
  EXPECT_FALSE(answer_.has_value());
  task_->answers = false;
  RunFor(absl::Seconds(40));
  EXPECT_TRUE(answer_.has_value());
}

class WatchedMasterTest : public WatchedPeersTest {
 protected:
  static constexpr char kRefused[] = "connect: Connection refused (111)";
  static CallOptions Waiting() {
    CallOptions options;
    options.wait_for_ready = true;
    return options;
  }
  void Run() {
    answer_.reset();
    master_->RunStep(Waiting(), {},
                     [this](absl::StatusOr<RunStepReply> reply) { answer_ = reply.status(); });
  }
  void CreateSession() {
    answer_.reset();
    master_->CreateSession(Waiting(), {}, [this](absl::StatusOr<CreateSessionReply> reply) {
      answer_ = reply.status();
    });
  }
  void ExpectGivenUp(const std::string& text) {
    ASSERT_TRUE(answer_.has_value());
    EXPECT_EQ(answer_->code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(answer_->message()), HasSubstr(text));
    EXPECT_TRUE(answer_->GetPayload(kGivenUpPayload).has_value());
  }
  const std::shared_ptr<MasterApi> master_ = transport_->ConnectMaster("grpc://far:2222").value();
};

TEST_F(WatchedMasterTest, CallsThatWaitForItAreWatchedToo) {
  Run();
  RunFor(absl::Seconds(60));
  EXPECT_FALSE(answer_.has_value());
  task_->answers = false;
  RunFor(absl::Seconds(29));
  EXPECT_FALSE(answer_.has_value());
  RunFor(absl::Seconds(4));
  ExpectGivenUp("the master grpc://far:2222 has been silent for 30s");
  Run();
  ExpectGivenUp("the master grpc://far:2222 has been silent for");
}

TEST_F(WatchedMasterTest, WhatBecomesOfAConnectionThatWasLeftDoesNotCount) {
  task_->renewing_helps = true;
  for (const absl::Status& end : {absl::UnavailableError("Socket closed"), absl::OkStatus()}) {
    Run();
    task_->answers = false;
    RunFor(absl::Seconds(33));
    ExpectGivenUp("the master grpc://far:2222 has been silent for 30s");
    std::vector<CallDone<PeerInfo>> left = std::exchange(task_->unanswered, {});
    Run();
    RunFor(absl::Seconds(10));
    EXPECT_FALSE(answer_.has_value());
    task_->answers = false;
    RunFor(absl::Seconds(20));
    for (CallDone<PeerInfo>& done : left) {
      end.ok() ? std::move(done)(PeerInfo()) : std::move(done)(end);
    }
    RunFor(absl::Seconds(13));
    ExpectGivenUp("the master grpc://far:2222 has been silent for 30s");
    task_->unanswered.clear();
  }
}

TEST_F(WatchedMasterTest, OneThatIsNotThereYetIsWaitedFor) {
  task_->refusal = kRefused;
  CreateSession();
  RunFor(absl::Hours(2));
  EXPECT_FALSE(answer_.has_value());
  task_->refusal.clear();
  RunFor(absl::Minutes(2));
  EXPECT_FALSE(answer_.has_value());
  task_->answers = false;
  RunFor(absl::Seconds(33));
  ExpectGivenUp("the master grpc://far:2222 has been silent for 30s");
}

TEST_F(WatchedMasterTest, OneThatAcceptsConnectionsAndSaysNothingIsSilent) {
  task_->refusal = "connection attempt timed out before receiving SETTINGS frame";
  CreateSession();
  RunFor(absl::Seconds(33));
  ExpectGivenUp("the master grpc://far:2222 has been silent for 30s");
}

TEST_F(WatchedMasterTest, AbsenceIsNoSilence) {
  LivenessOptions impatient;
  impatient.warn_after = absl::Seconds(1);
  impatient.fail_after = absl::Seconds(2);
  const auto transport =
      NewWatchedTransport(std::make_unique<FakeTransport>(task_), *scheduler_, impatient);
  const auto master = transport->ConnectMaster("grpc://far:2222").value();
  task_->refusal = kRefused;
  master->RunStep(Waiting(), {},
                  [this](absl::StatusOr<RunStepReply> reply) { answer_ = reply.status(); });
  RunFor(absl::Seconds(5));
  ExpectGivenUp("the master grpc://far:2222 is gone");
}

TEST_F(WatchedMasterTest, OneThatHasGoneFailsWhatItsSessionsWaitFor) {
  Run();
  RunFor(absl::Seconds(60));
  task_->refusal = kRefused;
  RunFor(absl::Seconds(2));
  EXPECT_FALSE(answer_.has_value());
  RunFor(absl::Seconds(3));
  ExpectGivenUp("the master grpc://far:2222 is gone");
  EXPECT_THAT(std::string(answer_->message()), HasSubstr(kRefused));
  // A later call has as long: it may be back.
  Run();
  EXPECT_FALSE(answer_.has_value());
  RunFor(absl::Seconds(5));
  ExpectGivenUp("the master grpc://far:2222 is gone");
}

TEST_F(WatchedPeersTest, ACallThatWaitsForAConnectionToATaskThatIsGoneFails) {
  task_->refusal = "Connection refused";
  Open();
  RunFor(absl::Seconds(2));
  EXPECT_FALSE(answer_.has_value());
  RunFor(absl::Seconds(8));
  ASSERT_TRUE(answer_.has_value());
  EXPECT_EQ(answer_->code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(answer_->message()), testing::HasSubstr("task:3 is gone"));
}

TEST_F(WatchedPeersTest, SessionsWithTheSameClusterShareItsConnections) {
  const ClusterSpec cluster({{"a", {{0, "host:1"}, {3, "host:2"}}}});
  const ClusterSpec other({{"a", {{0, "host:1"}, {3, "host:3"}}}});
  const TaskName self{"a", 0, 0};
  const std::shared_ptr<Peers> first = transport_->Connect(cluster, self, task_);
  EXPECT_EQ(transport_->Connect(cluster, self, task_), first);
  EXPECT_NE(transport_->Connect(other, self, task_), first);
  EXPECT_NE(transport_->Connect(cluster, {"a", 0, 3}, task_), first);
  EXPECT_NE(transport_->Connect(cluster, self, nullptr), first);
  EXPECT_NE(transport_->Connect(cluster, self, std::make_shared<FakeTask>()), first);
}

}  // namespace
}  // namespace muster
