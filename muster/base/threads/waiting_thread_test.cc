#include "muster/base/threads/waiting_thread.h"

#include <functional>
#include <latch>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

namespace muster {
namespace {

constexpr int64_t kForever = INT64_MAX;

// Work that a test hands out, on a clock that the test turns by sleeping.
class FakeSource : public WorkSource {
 public:
  bool is_exclusive() const override { return exclusive; }
  bool Claim() override {
    ++claims;
    return claimable;
  }
  void GiveBack() override { ++given_back; }
  bool Look() override { return !work.empty(); }
  bool Serve() override {
    const std::function<void()> next = std::move(work.back());
    work.pop_back();
    next();
    return !ended;
  }
  bool Sleep(WaitingThread& thread, int64_t nanos) override {
    ++sleeps;
    if (parks) {
      thread.Park(nanos);
      return true;
    }
    if (nanos == kForever) return false;
    virtual_clock.Advance(absl::Nanoseconds(nanos));
    return true;
  }
  Clock& clock() override { return virtual_clock; }

  bool exclusive = false;
  bool claimable = true;
  bool ended = false;
  bool parks = false;
  int claims = 0;
  int given_back = 0;
  int sleeps = 0;
  std::vector<std::function<void()>> work;
  VirtualClock virtual_clock;
};

// Of a thread that only sleeps.
class Idle : public FakeSource {
 public:
  Idle() { parks = true; }
  Clock& clock() override { return Clock::Real(); }
};

TEST(WaitingThreadTest, WorkIsServedUntilTheWaitIsOver) {
  FakeSource source;
  int served = 0;
  for (int i = 0; i < 5; ++i) source.work.push_back([&] { ++served; });
  EXPECT_TRUE(WaitingThread::Current().WaitUntil([&] { return served == 3; }, source));
  EXPECT_EQ(served, 3);
  EXPECT_EQ(source.sleeps, 0);
}

TEST(WaitingThreadTest, AWaitThatIsOverClaimsNothing) {
  FakeSource source;
  EXPECT_TRUE(WaitingThread::Current().WaitUntil([] { return true; }, source));
  EXPECT_EQ(source.claims, 0);
}

TEST(WaitingThreadTest, LimitsPassOnTheClockOfTheSource) {
  FakeSource source;
  const int64_t begin = source.virtual_clock.NowNanos();
  EXPECT_FALSE(WaitingThread::Current().WaitUntil([] { return false; }, source, absl::Hours(10)));
  EXPECT_EQ(source.virtual_clock.NowNanos() - begin, absl::ToInt64Nanoseconds(absl::Hours(10)));
}

TEST(WaitingThreadTest, WhatNeverComesIsNotWaitedFor) {
  FakeSource source;
  EXPECT_FALSE(WaitingThread::Current().WaitUntil([] { return false; }, source));
  EXPECT_EQ(source.sleeps, 1);
}

TEST(WaitingThreadTest, ASimulationWaitsOnItsClock) {
  const auto scheduler = SimulatedScheduler::Create(3);
  const int64_t begin = scheduler->clock().NowNanos();
  bool inner = false, outer = false;
  // A task that waits in turn, for a timer that is set later than the one of the outer wait.
  scheduler->ScheduleAfter(absl::Hours(1), [&] {
    scheduler->ScheduleAfter(absl::Hours(2), [&] { inner = true; });
    scheduler->HelpUntil([&] { return inner; });
    EXPECT_TRUE(inner);
    outer = true;
  });
  scheduler->HelpUntil([&] { return outer; });
  EXPECT_TRUE(outer);
  EXPECT_EQ(scheduler->clock().NowNanos() - begin, absl::ToInt64Nanoseconds(absl::Hours(3)));
}

// --- Waking ------------------------------------------------------------------------------------

void WakeFromOutside(WaitingThread& thread) {
  std::thread([&thread] { thread.Wake(); }).join();
}

TEST(WaitingThreadTest, AWakeUpIsNotLostBeforeTheThreadSleeps) {
  WaitingThread& thread = WaitingThread::Current();
  WakeFromOutside(thread);
  thread.Park(kForever);
  WakeFromOutside(thread);
  EXPECT_FALSE(thread.Poll({}, kForever));
}

TEST(WaitingThreadTest, WakeUpsOfEarlierWaitsDoNotShortenASleep) {
  WaitingThread& thread = WaitingThread::Current();
  Idle idle;
  WakeFromOutside(thread);
  EXPECT_FALSE(thread.WaitUntil([] { return false; }, idle, absl::Milliseconds(1)));
  EXPECT_EQ(idle.sleeps, 1);
  // A thread that wakes itself is awake.
  idle.work.push_back([&] { thread.Wake(); });
  EXPECT_FALSE(thread.WaitUntil([] { return false; }, idle, absl::Milliseconds(1)));
  EXPECT_EQ(idle.sleeps, 2);
}

TEST(WaitingThreadTest, WakeUpsWithoutReasonEndNoWait) {
  Idle idle;
  std::atomic<bool> done{false};
  std::atomic<int> checks{0};
  std::shared_ptr<WaitingThread> waiting = WaitingThread::Current().Share();
  std::thread other([&] {
    for (int i = 1; i <= 100; ++i) {
      waiting->Wake();
      while (checks < i) std::this_thread::yield();
    }
    done = true;
    waiting->Wake();
  });
  EXPECT_TRUE(WaitingThread::Current().WaitUntil(
      [&] {
        const bool is_done = done;
        ++checks;
        return is_done;
      },
      idle));
  EXPECT_GE(checks, 100);
  other.join();
}

TEST(WaitingThreadTest, EveryWakeUpArrives) {
  constexpr int kRounds = 20'000;
  std::atomic<int> ping{0}, pong{0};
  std::shared_ptr<WaitingThread> first = WaitingThread::Current().Share();
  std::latch started(1);
  std::shared_ptr<WaitingThread> second;
  std::thread other([&] {
    second = WaitingThread::Current().Share();
    started.count_down();
    Idle idle;
    for (int i = 1; i <= kRounds; ++i) {
      EXPECT_TRUE(WaitingThread::Current().WaitUntil([&] { return ping >= i; }, idle));
      pong = i;
      first->Wake();
    }
  });
  started.wait();
  Idle idle;
  for (int i = 1; i <= kRounds; ++i) {
    ping = i;
    second->Wake();
    ASSERT_TRUE(WaitingThread::Current().WaitUntil([&] { return pong >= i; }, idle));
  }
  other.join();
}

// The wake-up for the outer wait comes while the thread is in the inner one.
TEST(WaitingThreadTest, AnInnerWaitDoesNotSwallowTheEndOfTheOuterOne) {
  WaitingThread& thread = WaitingThread::Current();
  Idle outer, inner;
  std::atomic<bool> outer_done{false}, inner_done{false};
  std::shared_ptr<WaitingThread> waiting = thread.Share();
  std::thread other;
  outer.work.push_back([&] {
    other = std::thread([&] {
      outer_done = true;
      waiting->Wake();
      inner_done = true;
      waiting->Wake();
    });
    EXPECT_TRUE(thread.WaitUntil([&] { return inner_done.load(); }, inner));
  });
  EXPECT_TRUE(thread.WaitUntil([&] { return outer_done.load(); }, outer));
  other.join();
}

TEST(WaitingThreadTest, PollEndsWithADescriptorOrAWakeUp) {
  int pipes[2];
  ASSERT_EQ(pipe(pipes), 0);
  WaitingThread& thread = WaitingThread::Current();
  pollfd reading = {pipes[0], POLLIN, 0};
  const auto poll_one = [&](int64_t nanos) {
    return thread.Poll(absl::MakeSpan(&reading, 1), nanos);
  };
  EXPECT_FALSE(poll_one(1'000'000));
  std::shared_ptr<WaitingThread> waiting = thread.Share();
  std::thread other([&] { waiting->Wake(); });
  EXPECT_FALSE(poll_one(kForever));
  other.join();
  ASSERT_EQ(write(pipes[1], "x", 1), 1);
  // A wake-up may have been told twice.
  while (!poll_one(kForever)) {
  }
  EXPECT_EQ(reading.revents, POLLIN);
  close(pipes[0]);
  close(pipes[1]);
}

TEST(WaitingThreadTest, AThreadThatHasEndedCanBeWoken) {
  std::shared_ptr<WaitingThread> gone;
  std::thread([&] {
    gone = WaitingThread::Current().Share();
    gone->Poll({}, 1);
  }).join();
  EXPECT_EQ(gone.use_count(), 1);
  gone->Wake();
}

// Destructors that run at the end of a thread may wait, after its thread-locals are gone.
TEST(WaitingThreadTest, AThreadThatEndsMayStillWait) {
  struct AtEnd {
    ~AtEnd() {
      FakeSource source;
      source.work.push_back([this] { *served = true; });
      WaitingThread::Current().WaitUntil([this] { return *served; }, source);
      *last = WaitingThread::Current().weak_from_this();
    }
    bool* served = nullptr;
    std::weak_ptr<WaitingThread>* last = nullptr;
  };
  bool served = false;
  std::weak_ptr<WaitingThread> last;
  std::thread([&] {
    thread_local AtEnd at_end;
    at_end.served = &served;
    at_end.last = &last;
    WaitingThread::Current();
  }).join();
  EXPECT_TRUE(served);
  EXPECT_TRUE(last.expired());
}

// --- Sources that one thread serves at a time ----------------------------------------------------

TEST(WaitingThreadTest, AnExclusiveSourceIsGivenBackOnce) {
  FakeSource source;
  source.exclusive = true;
  bool served = false;
  source.work.push_back([&] {
    EXPECT_TRUE(WaitingThread::Current().has_duty());
    served = true;
  });
  EXPECT_TRUE(WaitingThread::Current().WaitUntil([&] { return served; }, source));
  EXPECT_FALSE(WaitingThread::Current().has_duty());
  EXPECT_EQ(source.claims, 1);
  EXPECT_EQ(source.given_back, 1);
}

TEST(WaitingThreadTest, AThreadThatWasBusyClaimsItsSourceAgain) {
  FakeSource source;
  source.exclusive = true;
  int served = 0;
  for (int i = 0; i < 2; ++i) {
    source.work.push_back([&] {
      WaitingThread::Current().HandOver();
      WaitingThread::Current().HandOver();
      ++served;
    });
  }
  EXPECT_TRUE(WaitingThread::Current().WaitUntil([&] { return served == 2; }, source));
  EXPECT_EQ(source.claims, 2);
  EXPECT_EQ(source.given_back, 2);
}

TEST(WaitingThreadTest, ASourceThatAnotherThreadServesIsLeftToIt) {
  FakeSource source;
  source.exclusive = true;
  source.claimable = false;
  source.work.push_back([] { FAIL() << "of another thread"; });
  std::atomic<bool> done{false};
  std::shared_ptr<WaitingThread> waiting = WaitingThread::Current().Share();
  std::thread other([&] {
    done = true;
    waiting->Wake();
  });
  EXPECT_TRUE(WaitingThread::Current().WaitUntil([&] { return done.load(); }, source));
  EXPECT_EQ(source.given_back, 0);
  other.join();
}

TEST(WaitingThreadTest, ASourceThatHasEndedIsLeft) {
  FakeSource source;
  source.exclusive = true;
  source.ended = true;
  std::thread other;
  std::atomic<bool> done{false};
  source.work.push_back([] { FAIL() << "after its end"; });
  source.work.push_back([&, waiting = WaitingThread::Current().Share()] {
    other = std::thread([&done, waiting] {
      done = true;
      waiting->Wake();
    });
  });
  EXPECT_TRUE(WaitingThread::Current().WaitUntil([&] { return done.load(); }, source));
  EXPECT_EQ(source.given_back, 1);
  EXPECT_EQ(source.work.size(), 1);
  other.join();
}

TEST(WaitingThreadTest, AnAnswerIsWaitedForWhereTheLastCallWent) {
  Pace pace(1000);
  const auto source = std::make_shared<FakeSource>();
  WaitingThread& thread = WaitingThread::Current();
  bool served = false;
  source->work.push_back([&] { served = true; });
  thread.NoteCall(source);
  EXPECT_TRUE(thread.WaitForAnswer([&] { return served; }, pace));
  // Without one the thread sleeps.
  source->work.push_back([] { FAIL() << "nothing was called"; });
  thread.ForgetCall();
  EXPECT_FALSE(thread.WaitForAnswer([] { return false; }, pace, absl::Milliseconds(1)));
}

// --- Spinning ----------------------------------------------------------------------------------

TEST(WaitingThreadTest, AsManyThreadsSpinAsThereAreCoresUnlessThereIsOneOnly) {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  FakeSource source;
  int spinning = 0;
  while (spinning <= cores && source.TryBeginSpin()) ++spinning;
  EXPECT_EQ(spinning, cores > 1 ? cores : 0);
  Pace quick(1000);
  for (int i = 0; i < 4; ++i) quick.NoteSpin(true);
  const auto work = [] { return WaitingThread::Seen::kWork; };
  EXPECT_FALSE(WaitingThread::Spin(quick, work));
  for (; spinning > 0; --spinning) source.EndSpin();
  EXPECT_EQ(WaitingThread::Spin(quick, work), cores > 1);
}

TEST(WaitingThreadTest, OnlyWhatIsQuickIsSpunFor) {
  Pace pace(1000);
  const auto work = [] { return WaitingThread::Seen::kWork; };
  EXPECT_FALSE(WaitingThread::Spin(pace, work));
  for (int i = 0; i < 2; ++i) pace.NoteSleep(1000);
  if (std::thread::hardware_concurrency() > 1) {
    EXPECT_TRUE(WaitingThread::Spin(pace, work));
  }
  // One that stops has learnt nothing; one that waits in vain has.
  for (int i = 0; i < 20; ++i) WaitingThread::Spin(pace, [] { return WaitingThread::Seen::kStop; });
  EXPECT_TRUE(pace.is_quick());
  for (int i = 0; i < 20; ++i)
    WaitingThread::Spin(pace, [] { return WaitingThread::Seen::kNothing; });
  EXPECT_EQ(pace.is_quick(), std::thread::hardware_concurrency() == 1);
}

// --- Turns -------------------------------------------------------------------------------------

TEST(TurnTest, OutsideOfOneNothingIsDeferred) {
  std::string said;
  WaitingThread::Current().AtEndOfTurn([&] { said += "a"; });
  EXPECT_EQ(said, "a");
  EXPECT_FALSE(WaitingThread::Current().has_deferred());
}

TEST(TurnTest, TheOutermostTurnSaysItAll) {
  WaitingThread& thread = WaitingThread::Current();
  std::string said;
  {
    const Turn outer;
    {
      const Turn inner;
      thread.AtEndOfTurn([&] {
        said += "a";
        thread.AtEndOfTurn([&] { said += "c"; });
      });
      thread.AtEndOfTurn([&] { said += "b"; });
    }
    EXPECT_EQ(said, "");
    EXPECT_TRUE(thread.has_deferred());
  }
  EXPECT_EQ(said, "abc");
  EXPECT_FALSE(thread.has_deferred());
}

TEST(TurnTest, ALongTurnSaysItBefore) {
  WaitingThread& thread = WaitingThread::Current();
  std::string said;
  const Turn turn;
  thread.AtEndOfTurn([&] { said += "a"; });
  thread.RunDeferred();
  EXPECT_EQ(said, "a");
}

TEST(TurnTest, AThreadThatWaitsSaysItBefore) {
  WaitingThread& thread = WaitingThread::Current();
  FakeSource source;
  std::string said;
  const Turn turn;
  thread.AtEndOfTurn([&] { said += "a"; });
  // Work that the wait depends on has a turn of its own.
  source.work.push_back([&] {
    const Turn inner;
    thread.AtEndOfTurn([&] { said += "b"; });
  });
  EXPECT_TRUE(thread.WaitUntil([&] { return said == "ab"; }, source));
  EXPECT_EQ(said, "ab");
  thread.AtEndOfTurn([&] { said += "c"; });
  EXPECT_EQ(said, "ab");
}

// --- Duties and collectors -----------------------------------------------------------------------

TEST(DutyTest, IsHandedOverOnce) {
  WaitingThread& thread = WaitingThread::Current();
  EXPECT_FALSE(thread.has_duty());
  thread.HandOver();
  int outer_gone = 0;
  int inner_gone = 0;
  const auto hand_outer_over = [&] { ++outer_gone; };
  const auto hand_inner_over = [&] { ++inner_gone; };
  Duty outer(hand_outer_over);
  {
    Duty inner(hand_inner_over);
    EXPECT_TRUE(thread.has_duty());
    thread.HandOver();
    thread.HandOver();
    EXPECT_TRUE(inner.is_handed_over());
  }
  EXPECT_TRUE(outer.is_handed_over());
  EXPECT_EQ(outer_gone, 1);
  EXPECT_EQ(inner_gone, 1);
  outer.TakeBack();
  thread.HandOver();
  EXPECT_EQ(outer_gone, 2);
}

TEST(DutyTest, KeepsUntilItIsToldOtherwise) {
  WaitingThread& thread = WaitingThread::Current();
  auto kept = std::make_shared<int>(1);
  EXPECT_FALSE(thread.Keep(kept));
  const auto nothing = [] {};
  {
    Duty duty(nothing);
    EXPECT_TRUE(thread.Keep(kept));
    EXPECT_EQ(kept.use_count(), 2);
    duty.DropKept();
    EXPECT_EQ(kept.use_count(), 1);
    EXPECT_TRUE(thread.Keep(kept));
  }
  EXPECT_EQ(kept.use_count(), 1);
}

TEST(CollectingTest, TheInnermostLoopCollectsForItsOwner) {
  const WaitingThread& thread = WaitingThread::Current();
  int first = 0, second = 0, list = 0, other_list = 0;
  EXPECT_EQ(thread.CollectorOf(&first), nullptr);
  {
    const Collecting outer(&first, &list);
    EXPECT_EQ(thread.CollectorOf(&first), &list);
    {
      const Collecting inner(&second, &other_list);
      EXPECT_EQ(thread.CollectorOf(&first), nullptr);
      EXPECT_EQ(thread.CollectorOf(&second), &other_list);
    }
    EXPECT_EQ(thread.CollectorOf(&first), &list);
  }
  EXPECT_EQ(thread.CollectorOf(&first), nullptr);
}

}  // namespace
}  // namespace muster
