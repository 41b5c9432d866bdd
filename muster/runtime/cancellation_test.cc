#include "muster/runtime/cancellation.h"

#include <thread>

#include <gtest/gtest.h>

namespace muster {
namespace {

TEST(CancellationTest, RunsCallbacksOnceAndKeepsTheFirstReason) {
  Cancellation cancellation;
  int calls = 0;
  ASSERT_TRUE(cancellation.Register(cancellation.NewToken(), [&] { ++calls; }));
  const Cancellation::Token removed = cancellation.NewToken();
  ASSERT_TRUE(cancellation.Register(removed, [&] { calls += 100; }));
  EXPECT_TRUE(cancellation.Deregister(removed));
  cancellation.Cancel(absl::CancelledError("first"));
  cancellation.Cancel(absl::CancelledError("second"));
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(cancellation.reason().message(), "first");
  EXPECT_FALSE(cancellation.Register(cancellation.NewToken(), [&] { ++calls; }));
  EXPECT_EQ(calls, 1);
}

TEST(CancellationTest, ACallbackMayTakeBackWhatRunsWithIt) {
  Cancellation cancellation;
  const Cancellation::Token token = cancellation.NewToken();
  bool was_pending = true;
  ASSERT_TRUE(cancellation.Register(token, [&] { was_pending = cancellation.Deregister(token); }));
  cancellation.Cancel(absl::CancelledError("enough"));
  EXPECT_FALSE(was_pending);
}

TEST(CancellationTest, DeregisterAndCancelAgreeOnWhoWins) {
  for (int round = 0; round < 200; ++round) {
    Cancellation cancellation;
    bool called = false;
    const Cancellation::Token token = cancellation.NewToken();
    ASSERT_TRUE(cancellation.Register(token, [&] { called = true; }));
    std::thread other([&] { cancellation.Cancel(absl::CancelledError("stop")); });
    const bool removed = cancellation.Deregister(token);
    EXPECT_EQ(removed, !called);
    other.join();
  }
}

}  // namespace
}  // namespace muster
