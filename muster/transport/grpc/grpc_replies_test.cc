#include "muster/transport/grpc/grpc_replies.h"

#include <atomic>
#include <latch>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/transport/api/peer.h"
#include "muster/transport/grpc/grpc_fakes_test.h"

namespace muster {
namespace {

using testing::HasSubstr;

constexpr int64_t kGiga = int64_t{1} << 30;

// A system that has as much left as it is told to.
class FakeSystem {
 public:
  MemoryGuard& guard() { return guard_; }
  void Leave(int64_t bytes) { left_ = bytes; }

 private:
  std::atomic<int64_t> left_{8 * kGiga};
  MemoryGuard guard_{[this] {
    SystemMemory::Room room;
    room.available_bytes = left_;
    room.limit_bytes = 8 * kGiga;
    room.holder = "the test";
    return room;
  }};
};

class FakeCall : public GrpcReplies::Call {
 public:
  explicit FakeCall(int port) : name_(absl::StrCat("ipv4:127.0.0.1:", port)) {}
  std::string peer_name() const override { return name_; }
  void Refuse(absl::Status why) override {
    why_ = std::move(why);
    refused_.count_down();
  }
  absl::Status Wait() {
    refused_.wait();
    return why_;
  }
  bool is_refused() const { return refused_.try_wait(); }

 private:
  const std::string name_;
  absl::Status why_;
  std::latch refused_{1};
};

absl::StatusOr<RecvTensorReply> Receive(FakeTask& task) {
  return Await<RecvTensorReply>([&](CallDone<RecvTensorReply> done) {
    task.remote->RecvTensor({}, {3, "key", 4}, std::move(done));
  });
}

TEST(GrpcRepliesTest, CallsToTheBusiestAddressAreRefusedWhenMemoryRunsOut) {
  FakeSystem system;
  GrpcReplies replies(system.guard());
  FakeTask busy, quiet;
  ASSERT_TRUE(busy.Start().ok());
  ASSERT_TRUE(quiet.Start().ok());
  busy.worker->recv_reply.value.tensor = *Tensor::Make(DType::kFloat, Shape({1 << 20}));
  quiet.worker->recv_reply.value.tensor = *Tensor::Make(DType::kFloat, Shape({1}));
  FakeCall to_busy(busy.server->port()), to_quiet(quiet.server->port());
  replies.Begin(to_busy);
  replies.Begin(to_quiet);
  // Bytes keep coming from both, which are not said to be complete replies.
  const auto receive_for = [&](absl::Duration time, FakeCall& until) {
    const absl::Time end = absl::Now() + time;
    while (absl::Now() < end && !until.is_refused()) {
      ASSERT_TRUE(Receive(busy).ok());
      ASSERT_TRUE(Receive(quiet).ok());
    }
  };
  receive_for(absl::Milliseconds(300), to_busy);
  EXPECT_FALSE(to_busy.is_refused()) << "there is memory";
  system.Leave(0);
  receive_for(absl::Seconds(60), to_busy);
  ASSERT_TRUE(to_busy.is_refused());
  EXPECT_EQ(to_busy.Wait().ToString(),
            absl::StrCat("RESOURCE_EXHAUSTED: OOM when receiving a message from 127.0.0.1:",
                         busy.server->port(), ": the test has 0 bytes left of ", 8 * kGiga));
  EXPECT_FALSE(replies.End(to_busy));
  EXPECT_FALSE(to_quiet.is_refused());
  EXPECT_TRUE(replies.End(to_quiet));
}

// Bytes of a call that failed never become a complete reply.
TEST(GrpcRepliesTest, WhatFailedCallsHaveReceivedDoesNotAddUp) {
  FakeSystem system;
  system.Leave(0);
  GrpcReplies replies(system.guard());
  FakeTask task;
  ASSERT_TRUE(task.Start().ok());
  task.worker->recv_reply.value.tensor = *Tensor::Make(DType::kFloat, Shape({1 << 20}));
  FakeCall call(task.server->port());
  replies.Begin(call);
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(Receive(task).ok());
    replies.NoteReply(call, GrpcReplies::kUnknownBytes);
  }
  EXPECT_TRUE(replies.End(call));
}

// A client that may have no more memory.
class GrpcReplySizeTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(task_.Start().ok());
    large_.tensors = {{"a:0", *Tensor::Make(DType::kUint8, Shape({kGiga / 2}))}};
    // Not a tensor, for which there would be no memory.
    small_.metadata = std::string(900'000, 'x');
    MemoryGuard::Global().Limit(-1);
  }
  void TearDown() override { MemoryGuard::Global().Limit(INT64_MAX); }

  absl::Status Receive(const RunStepReply& reply) {
    task_.master->run_step_reply = reply;
    return Await<RunStepReply>([&](CallDone<RunStepReply> done) {
             task_.remote_master->RunStep({}, {}, std::move(done));
           })
        .status();
  }
  FakeTask task_;
  RunStepReply large_, small_;
};

TEST_F(GrpcReplySizeTest, ALargeReplyIsRefusedWhileItComes) {
  const absl::Status refused = Receive(large_);
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("OOM when receiving a message from "));
  EXPECT_EQ(Receive(small_), absl::OkStatus());
}

TEST_F(GrpcReplySizeTest, ManySmallRepliesAreNotRefused) {
  for (int i = 0; i < 100; ++i) ASSERT_EQ(Receive(small_), absl::OkStatus()) << i;
}

// It would send a large one in parts. Here it does not, and memory is missed when all has come.
TEST_F(GrpcReplySizeTest, RepliesOfMusterAreNotWatched) {
  const std::shared_ptr<WorkerApi> worker = WorkerBeside(*task_.remote_master);
  const auto hello = Await<PeerInfo>(
      [&](CallDone<PeerInfo> done) { PeerOf(*worker)->Hello({}, LocalPeer(), std::move(done)); });
  ASSERT_EQ(hello.status(), absl::OkStatus());
  const absl::Status missed = Receive(large_);
  EXPECT_THAT(std::string(missed.message()), HasSubstr("OOM when receiving a message of "));
}

}  // namespace
}  // namespace muster
