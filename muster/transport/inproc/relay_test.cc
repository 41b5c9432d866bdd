#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/transport/inproc/in_process_transport.h"
#include "muster/transport/simulated/simulated_network.h"
#include "muster/transport/watch/watched_peers.h"

namespace muster {
namespace {

// Counts up by the requested number; requests that it is set to keep stay open.
class Counter : public ForwardingWorker<Counter> {
 public:
  template <typename Reply, typename Call>
  void Forward(CallOptions options, CallDone<Reply> done, Call) {
    ++calls;
    last = options.cancellation;
    caller = options.caller;
    if constexpr (std::is_same_v<Reply, Empty>) {
      if (keeps) {
        kept = std::move(done);
      } else {
        std::move(done)(Empty());
      }
    } else {
      std::move(done)(absl::UnimplementedError("only calls that say nothing"));
    }
  }
  int calls = 0;
  bool keeps = false;
  CallDone<Empty> kept;
  std::shared_ptr<Cancellation> last;
  std::shared_ptr<const Caller> caller;
};

// Remembers who has called it last.
class Listener : public ForwardingMaster<Listener> {
 public:
  template <typename Reply, typename Call>
  void Forward(CallOptions options, CallDone<Reply> done, Call) {
    caller = options.caller;
    std::move(done)(absl::UnimplementedError("it only listens"));
  }
  std::shared_ptr<const Caller> caller;
};

class RelayTest : public ::testing::Test {
 protected:
  // A call that is kept holds the network, which holds the worker that keeps it.
  ~RelayTest() override {
    served_->kept = nullptr;
    served_->last = nullptr;
  }
  void Connect(Transport& transport) {
    const ClusterSpec cluster({{"a", {{0, "a:1"}}}, {"b", {{0, "b:1"}}}});
    own_ = std::make_shared<Counter>();
    peers_ = transport.Connect(cluster, TaskName{"a", 0, 0}, own_);
    other_ = peers_->Worker("/job:b/replica:0/task:0");
    ASSERT_NE(other_, nullptr);
  }
  void Start(CallOptions options = {}) {
    answer_ = absl::UnknownError("not answered");
    other_->CleanupGraph(std::move(options), 1,
                         [this](absl::StatusOr<Empty> reply) { answer_ = reply.status(); });
  }
  // The answer so far.
  absl::Status Call(CallOptions options = {}) {
    Start(std::move(options));
    return answer_;
  }
  void RunAll() {
    scheduler_->RunUntil([] { return false; });
  }

  std::unique_ptr<SimulatedScheduler> scheduler_ = SimulatedScheduler::Create(1);
  std::shared_ptr<Counter> own_, served_ = std::make_shared<Counter>();
  std::shared_ptr<Peers> peers_;
  std::shared_ptr<WorkerApi> other_;
  absl::Status answer_;
};

TEST_F(RelayTest, InOneProcess) {
  const auto network = InProcessTransport::Create(*scheduler_);
  Connect(*network);
  EXPECT_EQ(peers_->Tasks().size(), 2u);
  EXPECT_EQ(peers_->Worker("/job:a/replica:0/task:0"), own_);
  EXPECT_EQ(peers_->Worker("/job:c/replica:0/task:0"), nullptr);
  EXPECT_TRUE(absl::IsUnavailable(Call()));
  CallOptions patient;
  patient.wait_for_ready = true;
  EXPECT_TRUE(absl::IsUnknown(Call(patient)));
  network->Listen("b:1", {served_, nullptr});
  EXPECT_EQ(answer_, absl::OkStatus());
  EXPECT_EQ(Call(), absl::OkStatus());
  network->Close("b:1");
  EXPECT_TRUE(absl::IsUnavailable(Call()));
  patient.timeout = absl::Seconds(1);
  Start(patient);
  RunAll();
  EXPECT_TRUE(absl::IsDeadlineExceeded(answer_));
  network->Listen("b:1", {served_, nullptr});
  EXPECT_EQ(served_->calls, 2);
  EXPECT_TRUE(absl::IsInvalidArgument(network->ConnectMaster("b:1").status()));
  const auto master = network->ConnectMaster("grpc://b:1");
  ASSERT_EQ(master.status(), absl::OkStatus());
  absl::Status none;
  (*master)->CloseSession({}, "s", [&](absl::StatusOr<Empty> reply) { none = reply.status(); });
  EXPECT_TRUE(absl::IsUnimplemented(none));
}

// Over every way of this kind, watched too.
TEST_F(RelayTest, CallsHaveTheirCaller) {
  const auto listener = std::make_shared<Listener>();
  const auto check = [&](Transport& transport) {
    Connect(transport);
    Start();
    scheduler_->RunUntil([&] { return served_->caller != nullptr; });
    ASSERT_NE(served_->caller, nullptr);
    EXPECT_EQ(served_->caller->ToString(), "task /job:a/replica:0/task:0");
    EXPECT_EQ(served_->caller->host, "a:1");
    EXPECT_EQ(served_->caller->role, Caller::Role::kTask);
    const auto master = transport.ConnectMaster("grpc://b:1");
    ASSERT_EQ(master.status(), absl::OkStatus());
    (*master)->CloseSession({}, "s", [](const absl::StatusOr<Empty>&) {});
    scheduler_->RunUntil([&] { return listener->caller != nullptr; });
    ASSERT_NE(listener->caller, nullptr);
    EXPECT_EQ(listener->caller->role, Caller::Role::kClient);
    EXPECT_EQ(listener->caller->name, "client");
    served_->caller = nullptr;
    listener->caller = nullptr;
  };
  const auto direct = InProcessTransport::Create(*scheduler_);
  direct->Listen("b:1", {served_, listener});
  check(*direct);
  auto network = SimulatedNetwork::Create(*scheduler_, {.seed = 9});
  network->Listen("b:1", {served_, listener});
  check(*network);
  check(*NewWatchedTransport(std::move(network), *scheduler_, LivenessOptions()));
}

TEST_F(RelayTest, CancellingEndsTheCallOnBothSides) {
  const auto network = InProcessTransport::Create(*scheduler_);
  Connect(*network);
  network->Listen("b:1", {served_, nullptr});
  served_->keeps = true;
  CallOptions options;
  options.cancellation = std::make_shared<Cancellation>();
  Start(options);
  options.cancellation->Cancel(absl::CancelledError("why"));
  RunAll();
  EXPECT_EQ(answer_, absl::CancelledError("why"));
  EXPECT_TRUE(served_->last->cancelled());
  std::move(served_->kept)(Empty());  // too late, and harmless
  EXPECT_EQ(answer_, absl::CancelledError("why"));
  Start(options);
  RunAll();
  EXPECT_EQ(answer_, absl::CancelledError("why"));
  EXPECT_EQ(served_->calls, 1);
}

TEST_F(RelayTest, LinksLoseCallsWithTheirProbability) {
  const auto network = SimulatedNetwork::Create(*scheduler_, {.seed = 9});
  Connect(*network);
  network->Listen("b:1", {served_, nullptr});
  network->SetLoss("a:1", "b:1", 0.5);
  // What is lost is sent again, later and later.
  int answered = 0, late = 0;
  for (int i = 0; i < 200; ++i) {
    other_->CleanupGraph({}, 1, [&](absl::StatusOr<Empty> reply) {
      answered += reply.ok();
      late += scheduler_->clock().NowNanos() > absl::ToInt64Nanoseconds(absl::Milliseconds(190));
    });
  }
  RunAll();
  EXPECT_EQ(answered, 200);
  EXPECT_GT(late, 60);
  EXPECT_LT(late, 140);
  EXPECT_EQ(served_->calls, answered);
  network->SetLoss("a:1", "b:1", 0);
  network->SetLoss("b:1", "a:1", 1);
  CallOptions options;
  options.timeout = absl::Seconds(1);
  Start(options);
  RunAll();
  EXPECT_TRUE(absl::IsDeadlineExceeded(answer_));
  EXPECT_EQ(served_->calls, answered + 1);
}

TEST_F(RelayTest, TasksDieAndComeBack) {
  const auto network = SimulatedNetwork::Create(*scheduler_, {.seed = 9});
  Connect(*network);
  network->Listen("b:1", {served_, nullptr});
  served_->keeps = true;
  Start();
  RunAll();
  network->Kill("b:1");
  RunAll();
  EXPECT_EQ(answer_, absl::UnavailableError("Socket closed"));
  std::move(served_->kept)(Empty());
  Start();
  RunAll();
  EXPECT_EQ(answer_, absl::UnavailableError("failed to connect to all addresses"));
  served_->keeps = false;
  CallOptions patient;
  patient.wait_for_ready = true;
  Start(patient);
  RunAll();
  EXPECT_TRUE(absl::IsUnknown(answer_));
  network->Listen("b:1", {served_, nullptr});
  RunAll();
  EXPECT_EQ(answer_, absl::OkStatus());
  // The caller dies: its call is cancelled there.
  served_->keeps = true;
  Start();
  RunAll();
  network->Kill("a:1");
  RunAll();
  EXPECT_TRUE(served_->last->cancelled());
  std::move(served_->kept)(Empty());
  RunAll();
  EXPECT_TRUE(absl::IsUnknown(answer_));
}

}  // namespace
}  // namespace muster
