#include "muster/worker/remote_rendezvous.h"

#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/runtime/lack_of_memory.h"
#include "muster/worker/worker_step.h"

namespace muster {
namespace {

constexpr char kKey[] =
    "/job:a/replica:0/task:0/device:CPU:0;0000000000000001;/job:b/replica:0/task:0/device:CPU:0;x;";

class RemoteRendezvousTest : public ::testing::Test {
 protected:
  using Got = std::shared_ptr<std::optional<absl::StatusOr<Rendezvous::Value>>>;
  static Rendezvous::RecvDone Into(const Got& got) {
    return [got](absl::StatusOr<Rendezvous::Value> value) { *got = std::move(value); };
  }
  static Got NewGot() { return std::make_shared<Got::element_type>(); }
  void RunReady() {
    while (scheduler_->RunOne()) {
    }
  }

  std::unique_ptr<SimulatedScheduler> scheduler_ = SimulatedScheduler::Create(1);
  std::shared_ptr<TransferLog> log_ = std::make_shared<TransferLog>();
  std::shared_ptr<RemoteRendezvous> rendezvous_ =
      std::make_shared<RemoteRendezvous>(1, *scheduler_, log_);
};

TEST_F(RemoteRendezvousTest, PeersMayNumberFramesOtherwise) {
  const Got early = NewGot(), late = NewGot(), same = NewGot();
  rendezvous_->RecvForPeer(absl::StrCat(kKey, "77:0"), Into(early));
  ASSERT_EQ(rendezvous_->Send(absl::StrCat(kKey, "5:0"), {Tensor::Scalar<float>(1), false}),
            absl::OkStatus());
  EXPECT_FALSE(early->has_value());
  rendezvous_->AliasFrame(5, 77);
  RunReady();
  ASSERT_TRUE(early->has_value());
  EXPECT_EQ((**early)->tensor.scalar<float>(), 1);
  rendezvous_->RecvForPeer(absl::StrCat(kKey, "77:1"), Into(late));
  rendezvous_->RecvForPeer(absl::StrCat(kKey, "5:2"), Into(same));
  ASSERT_EQ(rendezvous_->Send(absl::StrCat(kKey, "5:1"), {Tensor(), true}), absl::OkStatus());
  ASSERT_EQ(rendezvous_->Send(absl::StrCat(kKey, "5:2"), {Tensor(), true}), absl::OkStatus());
  ASSERT_TRUE(late->has_value() && same->has_value());
  EXPECT_TRUE((**late)->is_dead);
}

TEST_F(RemoteRendezvousTest, APeerThatStoppedWaitingTakesNothing) {
  const Got first = NewGot(), second = NewGot();
  const auto token = rendezvous_->RecvForPeer(absl::StrCat(kKey, "0:0"), Into(first));
  rendezvous_->RecvForPeer(absl::StrCat(kKey, "0:0"), Into(second));
  EXPECT_TRUE(rendezvous_->StopWaiting(token));
  EXPECT_FALSE(rendezvous_->StopWaiting(token));
  ASSERT_EQ(rendezvous_->Send(absl::StrCat(kKey, "0:0"), {Tensor(), true}), absl::OkStatus());
  EXPECT_FALSE(first->has_value());
  EXPECT_TRUE(second->has_value());
}

// As the reply of a RecvTensor that the kernel of a Send answers.
TEST_F(RemoteRendezvousTest, ASenderDoesNotCatchWhatAPeerLacks) {
  bool replied = false;
  rendezvous_->RecvForPeer(absl::StrCat(kKey, "0:0"),
                           [&](const absl::StatusOr<Rendezvous::Value>&) {
                             const Tensor reply(DType::kUint8, Shape({2000}));
                             replied = true;
                           });
  const auto account = MakeRef<MemoryAccount>("this test", 1000);
  const MemoryAccount::Scope scope(account.get());
  EXPECT_EQ(EndedByLackOfMemory([&] {
              return rendezvous_->Send(absl::StrCat(kKey, "0:0"), {Tensor(), true});
            }),
            absl::OkStatus());
  EXPECT_TRUE(replied);
}

TEST_F(RemoteRendezvousTest, EarlyReceivesAreBounded) {
  StepTable steps(*scheduler_, log_);
  std::shared_ptr<WorkerStep> last;
  for (int64_t i = 0; i < StepTable::kMaxEarlyReceives; ++i) last = *steps.ForReceive(i % 10);
  const auto refused = steps.ForReceive(3);
  EXPECT_TRUE(absl::IsResourceExhausted(refused.status()));
  EXPECT_THAT(std::string(refused.status().message()), ::testing::HasSubstr("100000"));
  EXPECT_FALSE(steps.ReceiveStopped(last));
  EXPECT_EQ(steps.ForReceive(3).status(), absl::OkStatus());
  steps.Finish(3);
  EXPECT_TRUE(absl::IsAborted(steps.ForReceive(3).status()));
  EXPECT_EQ(steps.ForReceive(4).status(), absl::OkStatus());
}

TEST_F(RemoteRendezvousTest, BytesOfAStepThatIsOverAreRefused) {
  StepTable steps(*scheduler_, log_);
  const std::shared_ptr<WorkerStep> before = *steps.ForBuffer(1);
  const std::shared_ptr<WorkerStep> after = *steps.ForBuffer(2);
  std::vector<absl::Status> ended;
  const auto ends = [&ended](const absl::StatusOr<Buffer>& bytes) {
    ended.push_back(bytes.status());
  };
  before->buffers()->Consume("key", ends);
  EXPECT_TRUE(ended.empty());
  steps.Finish(1);
  steps.Finish(2);
  after->buffers()->Consume("key", ends);
  ASSERT_EQ(ended.size(), 2u) << "also where they are asked for after the end";
  for (const absl::Status& status : ended) {
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
    EXPECT_TRUE(IsDerived(status));
  }
}

TEST_F(RemoteRendezvousTest, FinishedStepsAreForgottenInTheirOrder) {
  StepTable steps(*scheduler_, log_);
  for (int64_t i = 0; i <= static_cast<int64_t>(StepTable::kFinishedSteps); ++i) steps.Finish(i);
  EXPECT_EQ(steps.ForReceive(0).status(), absl::OkStatus());
  EXPECT_TRUE(absl::IsAborted(steps.ForReceive(1).status()));
}

}  // namespace
}  // namespace muster
