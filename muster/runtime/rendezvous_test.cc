#include "muster/runtime/rendezvous.h"

#include <gtest/gtest.h>

#include "muster/runtime/lack_of_memory.h"

namespace muster {
namespace {

TEST(RendezvousTest, PairsSendAndReceiveInEitherOrder) {
  auto rendezvous = NewLocalRendezvous();
  int got = 0;
  const auto receive = [&](absl::StatusOr<Rendezvous::Value> value) {
    ASSERT_TRUE(value.ok());
    got = value->tensor.scalar<int32_t>();
  };
  rendezvous->RecvAsync("early", receive);
  EXPECT_EQ(got, 0);
  ASSERT_TRUE(rendezvous->Send("early", {Tensor::Scalar<int32_t>(1), false}).ok());
  EXPECT_EQ(got, 1);
  ASSERT_TRUE(rendezvous->Send("late", {Tensor::Scalar<int32_t>(2), false}).ok());
  rendezvous->RecvAsync("late", receive);
  EXPECT_EQ(got, 2);
}

TEST(RendezvousTest, ASenderDoesNotCatchWhatTheReceiverLacks) {
  auto rendezvous = NewLocalRendezvous();
  bool received = false;
  rendezvous->RecvAsync("k", [&](const absl::StatusOr<Rendezvous::Value>&) {
    const Tensor reply(DType::kUint8, Shape({2000}));
    received = true;
  });
  const auto account = MakeRef<MemoryAccount>("this test", 1000);
  const MemoryAccount::Scope scope(account.get());
  EXPECT_EQ(EndedByLackOfMemory([&] {
              return rendezvous->Send("k", {Tensor(), true});
            }),
            absl::OkStatus());
  EXPECT_TRUE(received);
}

TEST(RendezvousTest, DeadnessTravels) {
  auto rendezvous = NewLocalRendezvous();
  bool dead = false;
  ASSERT_TRUE(rendezvous->Send("k", {Tensor(), true}).ok());
  rendezvous->RecvAsync("k",
                        [&](absl::StatusOr<Rendezvous::Value> value) { dead = value->is_dead; });
  EXPECT_TRUE(dead);
}

TEST(RendezvousTest, ValuesUnderOneKeyKeepTheirOrder) {
  auto rendezvous = NewLocalRendezvous();
  std::vector<int> got;
  const auto receive = [&](absl::StatusOr<Rendezvous::Value> value) {
    got.push_back(value->tensor.scalar<int32_t>());
  };
  const auto send = [&](int32_t value) {
    ASSERT_TRUE(rendezvous->Send("k", {Tensor::Scalar<int32_t>(value), false}).ok());
  };
  send(1);
  send(2);
  for (int i = 0; i < 4; ++i) rendezvous->RecvAsync("k", receive);
  send(3);
  send(4);
  EXPECT_EQ(got, (std::vector<int>{1, 2, 3, 4}));
}

TEST(RendezvousTest, AbortReachesThoseWhoWaitAndThoseWhoCome) {
  auto rendezvous = NewLocalRendezvous();
  absl::Status waiting, late;
  rendezvous->RecvAsync("a",
                        [&](absl::StatusOr<Rendezvous::Value> value) { waiting = value.status(); });
  rendezvous->Abort(absl::AbortedError("step failed"));
  rendezvous->Abort(absl::InternalError("later reasons do not count"));
  rendezvous->RecvAsync("b",
                        [&](absl::StatusOr<Rendezvous::Value> value) { late = value.status(); });
  EXPECT_EQ(waiting.message(), "step failed");
  EXPECT_EQ(late.message(), "step failed");
  EXPECT_FALSE(rendezvous->Send("c", {Tensor(), false}).ok());
}

}  // namespace
}  // namespace muster
