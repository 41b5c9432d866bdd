#include "muster/base/cancel_callback.h"

#include <atomic>
#include <list>
#include <thread>

#include <gtest/gtest.h>

namespace muster {
namespace {

const absl::Status kStop = absl::CancelledError("stop");

TEST(CancelCallbackTest, RunsOnceWithTheReason) {
  Cancellation cancellation;
  int calls = 0;
  CancelCallback callback;
  EXPECT_TRUE(callback.Start(&cancellation, [&](const absl::Status& reason) {
    EXPECT_EQ(reason, kStop);
    ++calls;
  }));
  EXPECT_EQ(calls, 0);
  cancellation.Cancel(kStop);
  cancellation.Cancel(absl::CancelledError("later"));
  EXPECT_EQ(calls, 1);
  EXPECT_FALSE(callback.Release());
}

TEST(CancelCallbackTest, RunsAtOnceWhereCancelledAlready) {
  Cancellation cancellation;
  cancellation.Cancel(kStop);
  absl::Status heard;
  CancelCallback callback;
  EXPECT_FALSE(callback.Start(&cancellation, [&](const absl::Status& reason) { heard = reason; }));
  EXPECT_EQ(heard, kStop);
  EXPECT_FALSE(callback.Release());
}

TEST(CancelCallbackTest, TryStartRunsNothingWhereCancelledAlready) {
  Cancellation cancellation;
  CancelCallback tried, late;
  int calls = 0;
  EXPECT_TRUE(tried.TryStart(&cancellation, [&](const absl::Status&) { ++calls; }));
  cancellation.Cancel(kStop);
  EXPECT_EQ(calls, 1);
  auto held = std::make_shared<int>(0);
  EXPECT_FALSE(late.TryStart(&cancellation, [held](const absl::Status&) { FAIL(); }));
  EXPECT_EQ(held.use_count(), 1);
  EXPECT_TRUE(late.Release());
}

TEST(CancelCallbackTest, WithoutACancellationNothingHappens) {
  CancelCallback callback;
  EXPECT_TRUE(
      callback.Start(static_cast<Cancellation*>(nullptr), [](const absl::Status&) { FAIL(); }));
  EXPECT_TRUE(callback.Release());
}

TEST(CancelCallbackTest, DoesNotRunAfterRelease) {
  Cancellation cancellation;
  auto held = std::make_shared<int>(0);
  CancelCallback callback;
  callback.Start(&cancellation, [held](const absl::Status&) { FAIL(); });
  EXPECT_TRUE(callback.Release());
  EXPECT_EQ(held.use_count(), 1);
  EXPECT_TRUE(callback.Release());
  cancellation.Cancel(kStop);
}

TEST(CancelCallbackTest, ItsEndReleases) {
  Cancellation cancellation;
  {
    CancelCallback callback;
    callback.Start(&cancellation, [](const absl::Status&) { FAIL(); });
  }
  cancellation.Cancel(kStop);
}

TEST(CancelCallbackTest, ReleaseBeforeStartWins) {
  Cancellation cancellation;
  CancelCallback callback;
  EXPECT_TRUE(callback.Release());
  EXPECT_TRUE(callback.Start(&cancellation, [](const absl::Status&) { FAIL(); }));
  cancellation.Cancel(kStop);
  EXPECT_TRUE(callback.Release());
}

TEST(CancelCallbackTest, TheCancellationMayGoBefore) {
  CancelCallback callback;
  {
    Cancellation cancellation;
    callback.Start(&cancellation, [](const absl::Status&) { FAIL(); });
  }
  EXPECT_TRUE(callback.Release());
}

TEST(CancelCallbackTest, RunInTheOrderOfTheirStarts) {
  Cancellation cancellation;
  std::vector<int> order;
  std::list<CancelCallback> callbacks;
  for (int i = 0; i < 5; ++i) {
    callbacks.emplace_back().Start(&cancellation,
                                   [&order, i](const absl::Status&) { order.push_back(i); });
  }
  callbacks.pop_front();
  callbacks.pop_back();
  std::next(callbacks.begin())->Release();
  cancellation.Cancel(kStop);
  EXPECT_EQ(order, (std::vector<int>{1, 3}));
}

TEST(CancelCallbackTest, TheCancellationMayEndInsideOfCancel) {
  auto cancellation = std::make_shared<Cancellation>();
  int calls = 0;
  CancelCallback first, second;
  first.Start(cancellation, [&](const absl::Status&) { cancellation.reset(); });
  second.Start(cancellation, [&](const absl::Status&) { ++calls; });
  cancellation->Cancel(kStop);
  EXPECT_EQ(calls, 1);
}

TEST(CancelCallbackTest, TheCancellationMayGoOnceReleased) {
  CancelCallback callback;
  {
    Cancellation cancellation;
    callback.Start(&cancellation, [](const absl::Status&) {});
    callback.Release();
  }
  EXPECT_TRUE(callback.Release());
}

TEST(CancelCallbackTest, ACallbackMayReleaseAndEndItself) {
  Cancellation cancellation;
  auto callback = std::make_unique<CancelCallback>();
  bool called = false;
  callback->Start(&cancellation, [&](const absl::Status&) {
    EXPECT_FALSE(callback->Release());
    callback.reset();
    called = true;
  });
  cancellation.Cancel(kStop);
  EXPECT_TRUE(called);
}

TEST(CancelCallbackTest, ACallbackMayReleaseAndEndAnother) {
  Cancellation cancellation;
  CancelCallback first;
  auto second = std::make_unique<CancelCallback>();
  first.Start(&cancellation, [&](const absl::Status&) {
    EXPECT_TRUE(second->Release());
    second.reset();
  });
  second->Start(&cancellation, [](const absl::Status&) { FAIL(); });
  cancellation.Cancel(kStop);
}

TEST(CancelCallbackTest, ReleaseWaitsForItsCallback) {
  Cancellation cancellation;
  std::atomic<bool> began{false}, ended{false}, may_end{false};
  CancelCallback callback;
  callback.Start(&cancellation, [&](const absl::Status&) {
    began = true;
    while (!may_end) std::this_thread::yield();
    ended = true;
  });
  std::thread canceller([&] { cancellation.Cancel(kStop); });
  while (!began) std::this_thread::yield();
  std::thread releaser([&] {
    EXPECT_FALSE(callback.Release());
    EXPECT_TRUE(ended);
  });
  may_end = true;
  releaser.join();
  canceller.join();
}

TEST(CancelCallbackTest, TryReleaseDoesNotWait) {
  Cancellation cancellation;
  std::atomic<bool> began{false}, may_end{false};
  CancelCallback callback;
  callback.Start(&cancellation, [&](const absl::Status&) {
    began = true;
    while (!may_end) std::this_thread::yield();
  });
  std::thread canceller([&] { cancellation.Cancel(kStop); });
  while (!began) std::this_thread::yield();
  EXPECT_FALSE(callback.TryRelease());
  may_end = true;
  canceller.join();
}

TEST(CancelCallbackTest, ReleaseDoesNotWaitForOthers) {
  Cancellation cancellation;
  std::atomic<bool> began{false}, may_end{false};
  CancelCallback slow, pending;
  slow.Start(&cancellation, [&](const absl::Status&) {
    began = true;
    while (!may_end) std::this_thread::yield();
  });
  pending.Start(&cancellation, [](const absl::Status&) { FAIL(); });
  std::thread canceller([&] { cancellation.Cancel(kStop); });
  while (!began) std::this_thread::yield();
  EXPECT_TRUE(pending.Release());
  may_end = true;
  canceller.join();
}

// An answer that comes while the call starts, and a cancellation at any moment: the callback has
// run or never will, and Release says which.
TEST(CancelCallbackTest, StartReleaseAndCancelRace) {
  for (int round = 0; round < 500; ++round) {
    auto cancellation = std::make_shared<Cancellation>();
    int calls = 0;
    bool was_pending = false;
    auto callback = std::make_unique<CancelCallback>();
    std::atomic<int> ready{0};
    const auto together = [&ready] {
      ++ready;
      while (ready < 3) std::this_thread::yield();
    };
    std::thread canceller([&] {
      together();
      cancellation->Cancel(kStop);
    });
    std::thread starter([&] {
      together();
      callback->Start(cancellation, [&](const absl::Status&) { ++calls; });
    });
    together();
    was_pending = callback->Release();
    EXPECT_EQ(was_pending ? 0 : 1, calls);
    starter.join();
    canceller.join();
    EXPECT_EQ(was_pending ? 0 : 1, calls);
  }
}

TEST(CancelCallbackTest, EndAndCancelRace) {
  for (int round = 0; round < 500; ++round) {
    auto cancellation = std::make_shared<Cancellation>();
    std::atomic<bool> ready{false};
    std::thread canceller([&ready, cancellation] {
      ready = true;
      cancellation->Cancel(kStop);
    });
    struct Call {
      int calls = 0;
      CancelCallback on_cancel;
    };
    {
      Call call;
      call.on_cancel.Start(cancellation, [&call](const absl::Status&) { ++call.calls; });
      while (!ready) std::this_thread::yield();
    }
    canceller.join();
  }
}

struct Scheduled {
  std::vector<std::string> reasons;
  CancelCallback on_cancel;
};

void Note(Scheduled& object, const absl::Status& reason) {
  object.reasons.emplace_back(reason.message());
}

TEST(CancelCallbackTest, AScheduledOneRunsAsATask) {
  const auto scheduler = SimulatedScheduler::Create(1);
  const auto cancellation = std::make_shared<Cancellation>();
  const auto object = std::make_shared<Scheduled>();
  EXPECT_TRUE(
      object->on_cancel.StartScheduled(cancellation, *scheduler, std::weak_ptr(object), Note));
  EXPECT_EQ(object.use_count(), 1);
  cancellation->Cancel(kStop);
  EXPECT_TRUE(object->reasons.empty());
  EXPECT_TRUE(scheduler->RunOne());
  EXPECT_EQ(object->reasons, std::vector<std::string>{"stop"});
  EXPECT_FALSE(object->on_cancel.Release());
}

TEST(CancelCallbackTest, AScheduledOneDoesNothingWithoutItsObject) {
  const auto scheduler = SimulatedScheduler::Create(1);
  const auto cancellation = std::make_shared<Cancellation>();
  auto object = std::make_shared<Scheduled>();
  object->on_cancel.StartScheduled(cancellation, *scheduler, std::weak_ptr(object),
                                   [](Scheduled&, const absl::Status&) { FAIL(); });
  cancellation->Cancel(kStop);
  object.reset();
  EXPECT_TRUE(scheduler->RunOne());
}

TEST(CancelCallbackTest, AScheduledOneIsATaskAlsoWhereCancelledAlready) {
  const auto scheduler = SimulatedScheduler::Create(1);
  const auto cancellation = std::make_shared<Cancellation>();
  cancellation->Cancel(kStop);
  auto object = std::make_shared<Scheduled>();
  std::string heard;
  EXPECT_FALSE(object->on_cancel.StartScheduled(
      cancellation, *scheduler, std::weak_ptr(object),
      [&heard](Scheduled&, const absl::Status& reason) { heard = std::string(reason.message()); }));
  EXPECT_FALSE(object->on_cancel.Release());
  object.reset();  // the call has not got so far that anything else holds it
  EXPECT_EQ(heard, "");
  EXPECT_TRUE(scheduler->RunOne());
  EXPECT_EQ(heard, "stop");
}

TEST(LinkedCancellationTest, CancelsInnerWhileItLives) {
  const auto outer = std::make_shared<Cancellation>();
  const auto kept = std::make_shared<Cancellation>();
  const auto renamed = std::make_shared<Cancellation>();
  const auto left = std::make_shared<Cancellation>();
  const LinkedCancellation link(outer, kept);
  const LinkedCancellation other(outer, renamed, absl::AbortedError("other"));
  { const LinkedCancellation ended(outer, left); }
  const LinkedCancellation none(nullptr, left);
  outer->Cancel(kStop);
  EXPECT_EQ(kept->reason(), kStop);
  EXPECT_EQ(renamed->reason(), absl::AbortedError("other"));
  EXPECT_FALSE(left->cancelled());
  const LinkedCancellation late(outer, left);
  EXPECT_EQ(left->reason(), kStop);
}

TEST(ChildCancellationTest, IsCancelledWithItsParentOrAlone) {
  Cancellation parent;
  ChildCancellation child(&parent), alone(&parent), detached(&parent);
  alone.get().Cancel(absl::AbortedError("alone"));
  EXPECT_FALSE(parent.cancelled());
  detached.Detach();
  parent.Cancel(kStop);
  EXPECT_EQ(child.get().reason(), kStop);
  EXPECT_EQ(alone.get().reason(), absl::AbortedError("alone"));
  EXPECT_FALSE(detached.get().cancelled());
}

TEST(FollowTest, IsCancelledByATaskAfterItsParent) {
  const auto scheduler = SimulatedScheduler::Create(1);
  const auto parent = std::make_shared<Cancellation>();
  const auto own = Follow(parent, *scheduler);
  const auto alone = Follow(nullptr, *scheduler);
  { const auto gone = Follow(parent, *scheduler); }
  parent->Cancel(kStop);
  EXPECT_FALSE(own->cancelled());
  EXPECT_TRUE(scheduler->RunOne());
  EXPECT_EQ(own->reason(), kStop);
  EXPECT_FALSE(scheduler->RunOne());
  const auto late = Follow(parent, *scheduler);
  CancelSoon(alone, *scheduler, absl::AbortedError("alone"));
  EXPECT_FALSE(alone->cancelled());
  while (scheduler->RunOne()) {
  }
  EXPECT_EQ(late->reason(), kStop);
  EXPECT_EQ(alone->reason(), absl::AbortedError("alone"));
}

TEST(AnswerOnceTest, TheFirstAnswerCountsAndEndsTheCallback) {
  const auto scheduler = SimulatedScheduler::Create(1);
  const auto cancellation = std::make_shared<Cancellation>();
  std::vector<int> answers;
  const auto call =
      std::make_shared<AnswerOnce<int>>([&](int result) { answers.push_back(result); });
  call->on_cancel.StartScheduled(cancellation, *scheduler, std::weak_ptr(call),
                                 [](AnswerOnce<int>& self, auto&) { self.Answer(-1); });
  EXPECT_FALSE(call->answered());
  EXPECT_TRUE(call->Answer(1));
  EXPECT_TRUE(call->answered());
  cancellation->Cancel(kStop);
  EXPECT_FALSE(scheduler->RunOne());
  EXPECT_FALSE(call->Answer(2));
  EXPECT_EQ(answers, std::vector<int>{1});
}

TEST(AnswerOnceTest, AnswersAndCancellationsRace) {
  for (int round = 0; round < 500; ++round) {
    auto cancellation = std::make_shared<Cancellation>();
    std::atomic<int> answers{0};
    auto call = std::make_shared<AnswerOnce<int>>([&](int) { ++answers; });
    std::atomic<bool> ready{false};
    std::thread answerer([&ready, call] {
      while (!ready) std::this_thread::yield();
      call->Answer(1);
    });
    std::thread canceller([&ready, cancellation] {
      while (!ready) std::this_thread::yield();
      cancellation->Cancel(kStop);
    });
    ready = true;
    call->on_cancel.Start(cancellation, [&call](const absl::Status&) { call->Answer(2); });
    answerer.join();
    canceller.join();
    EXPECT_EQ(answers, 1);
  }
}

}  // namespace
}  // namespace muster
