#include "muster/base/threads/thread_pool.h"

#include <atomic>
#include <chrono>
#include <fstream>
#include <latch>
#include <new>
#include <set>
#include <thread>

#include "absl/strings/str_cat.h"
#include <gtest/gtest.h>
#include <unistd.h>

#include "muster/base/mutex.h"
#include "muster/base/threads/waiting_thread.h"

namespace muster {
namespace {

TEST(ThreadPoolTest, RunsEverythingThatWasScheduled) {
  std::unique_ptr<Scheduler> pool = NewThreadPool(3);
  constexpr int kTasks = 1000;
  std::atomic<int> ran{0};
  std::latch done(kTasks);
  for (int i = 0; i < kTasks; ++i) {
    pool->Schedule([&] {
      ++ran;
      done.count_down();
    });
  }
  done.wait();
  EXPECT_EQ(ran, kTasks);
}

TEST(ThreadPoolTest, TasksMayScheduleTasks) {
  std::unique_ptr<Scheduler> pool = NewThreadPool(2);
  std::latch done(2);
  pool->Schedule([&] {
    pool->Schedule([&] { done.count_down(); });
    done.count_down();
  });
  done.wait();
}

TEST(ThreadPoolTest, ParallelForCoversEachItemOnce) {
  std::unique_ptr<Scheduler> pool = NewThreadPool(3);
  for (int64_t count : {0, 1, 2, 7, 1000}) {
    for (double cost : {1.0, 100000.0}) {
      std::vector<std::atomic<int>> seen(static_cast<size_t>(count));
      pool->ParallelFor(count, cost, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
      });
      for (const auto& times : seen) EXPECT_EQ(times, 1);
    }
  }
}

// Nobody is woken for 50 us of work; 100 ms are divided.
TEST(ThreadPoolTest, SleepingThreadsAreWokenForLongWorkOnly) {
  std::unique_ptr<Scheduler> pool = NewThreadPool(2);
  const auto blocks = [&](double cost) {
    std::atomic<int> count{0};
    pool->ParallelFor(100, cost, [&](int64_t, int64_t) { ++count; });
    return count.load();
  };
  EXPECT_GT(blocks(1e6), 1);
  // They look out for a while before they sleep.
  int short_work = blocks(500);
  for (int i = 0; i < 20'000 && short_work > 1; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    short_work = blocks(500);
  }
  EXPECT_EQ(short_work, 1);
}

// The threads of the pool may have other work.
TEST(ThreadPoolTest, ALoopHasNoMoreThreadsThanItIsAllowed) {
  for (const int parallelism : {1, 2, 3}) {
    std::unique_ptr<Scheduler> pool = NewThreadPool(4, parallelism);
    EXPECT_EQ(pool->parallelism(), parallelism);
    Mutex mutex;
    std::set<std::thread::id> threads;
    for (int i = 0; i < 20; ++i) {
      pool->ParallelFor(100, 1e6, [&](int64_t, int64_t) {
        std::this_thread::sleep_for(std::chrono::microseconds(100));
        MutexLock lock(mutex);
        threads.insert(std::this_thread::get_id());
      });
      EXPECT_LE(static_cast<int>(threads.size()), parallelism);
      threads.clear();
    }
  }
}

TEST(ThreadPoolTest, WhatALoopThrowsReachesItsCallerWhenAllBlocksAreOver) {
  std::unique_ptr<Scheduler> pool = NewThreadPool(3);
  for (const int64_t failing : {0, 50, 99}) {
    std::atomic<int> under_way{0};
    const auto loop = [&] {
      pool->ParallelFor(100, 1e6, [&](int64_t begin, int64_t end) {
        ++under_way;
        const bool fails = begin <= failing && failing < end;
        if (!fails) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        --under_way;
        if (fails) throw std::bad_alloc();
      });
    };
    EXPECT_THROW(loop(), std::bad_alloc);
    EXPECT_EQ(under_way, 0);
  }
  std::atomic<int64_t> covered{0};
  pool->ParallelFor(100, 1e6, [&](int64_t begin, int64_t end) { covered += end - begin; });
  EXPECT_EQ(covered, 100);
}

TEST(ThreadPoolTest, NestedParallelForDoesNotDeadlock) {
  std::unique_ptr<Scheduler> pool = NewThreadPool(1);
  std::atomic<int> total{0};
  pool->ParallelFor(8, 1e6, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      pool->ParallelFor(8, 1e6, [&](int64_t b, int64_t e) { total += static_cast<int>(e - b); });
    }
  });
  EXPECT_EQ(total, 64);
}

TEST(ThreadPoolTest, TimersFireInOrderAndCanBeCancelled) {
  std::unique_ptr<Scheduler> pool = NewThreadPool(1);
  Mutex mutex;
  std::vector<int> order;
  std::latch done(2);
  const auto note = [&](int which) {
    MutexLock lock(mutex);
    order.push_back(which);
  };
  pool->ScheduleAfter(absl::Milliseconds(60), [&] {
    note(2);
    done.count_down();
  });
  pool->ScheduleAfter(absl::Milliseconds(10), [&] {
    note(1);
    done.count_down();
  });
  const Scheduler::TimerId cancelled = pool->ScheduleAfter(absl::Seconds(1000), [&] { note(3); });
  EXPECT_TRUE(pool->CancelTimer(cancelled));
  EXPECT_FALSE(pool->CancelTimer(cancelled));
  done.wait();
  MutexLock lock(mutex);
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

bool Sleeps(pid_t thread) {
  std::ifstream stat(absl::StrCat("/proc/self/task/", thread, "/stat"));
  std::string number, name, state;
  stat >> number >> name >> state;
  return state == "S";
}

TEST(ThreadPoolTest, AThreadThatWaitsRunsTasksAndIsWokenAlone) {
  std::unique_ptr<Scheduler> pool = NewThreadPool(2);
  for (int i = 0; i < 2000; ++i) {
    std::atomic<int> ran{0};
    std::atomic<bool> done{false};
    const auto task = [&, waiting = WaitingThread::Current().Share()] {
      if (++ran < 3) return;
      done = true;
      waiting->Wake();
    };
    for (int k = 0; k < 3; ++k) pool->Schedule(task);
    pool->HelpUntil([&] { return done.load(); });
    EXPECT_EQ(ran, 3);
  }
}

// A thread is woken for a task, but what it waits for has come as well: it leaves, and the task is
// another's.
TEST(ThreadPoolTest, ATaskIsNotForgottenByTheThreadThatWasWokenForIt) {
  std::unique_ptr<Scheduler> pool = NewThreadPool(1);
  pid_t worker = 0, helper = 0;
  std::latch known(1), started(1);
  pool->Schedule([&] {
    worker = gettid();
    known.count_down();
  });
  known.wait();
  while (!Sleeps(worker)) std::this_thread::yield();
  std::atomic<bool> done{false};
  std::thread other([&] {
    helper = gettid();
    started.count_down();
    pool->HelpUntil([&] { return done.load(); });
  });
  started.wait();
  while (!Sleeps(helper)) std::this_thread::yield();
  std::latch ran(1);
  done = true;
  pool->Schedule([&] { ran.count_down(); });
  ran.wait();
  other.join();
}

TEST(SimulatedSchedulerTest, SameSeedSameOrder) {
  const auto run = [](uint64_t seed) {
    auto scheduler = SimulatedScheduler::Create(seed);
    std::vector<int> order;
    for (int i = 0; i < 20; ++i) scheduler->Schedule([&order, i] { order.push_back(i); });
    EXPECT_FALSE(scheduler->RunUntil([] { return false; }));
    return order;
  };
  EXPECT_EQ(run(1), run(1));
  EXPECT_NE(run(1), run(2));
}

TEST(ThreadPoolTest, AWaitEndsWithItsLimit) {
  std::unique_ptr<Scheduler> pool = NewThreadPool(1);
  EXPECT_FALSE(pool->HelpUntil([] { return false; }, absl::Milliseconds(1)));
}

TEST(SimulatedSchedulerTest, AWaitEndsWithItsLimitOnTheVirtualClock) {
  auto scheduler = SimulatedScheduler::Create(5);
  const absl::Time start = scheduler->clock().Now();
  int fired = 0;
  scheduler->ScheduleAfter(absl::Hours(1), [&] { ++fired; });
  scheduler->ScheduleAfter(absl::Hours(3), [&] { ++fired; });
  EXPECT_FALSE(scheduler->HelpUntil([] { return false; }, absl::Hours(2)));
  EXPECT_EQ(fired, 1);
  EXPECT_EQ(scheduler->clock().Now() - start, absl::Hours(2));
  EXPECT_TRUE(scheduler->HelpUntil([&] { return fired == 2; }, absl::Hours(2)));
  EXPECT_EQ(scheduler->clock().Now() - start, absl::Hours(3));
}

TEST(SimulatedSchedulerTest, TimeJumpsToTheNextTimer) {
  auto scheduler = SimulatedScheduler::Create(7);
  std::vector<absl::Time> fired;
  const absl::Time start = scheduler->clock().Now();
  scheduler->ScheduleAfter(absl::Hours(2), [&] { fired.push_back(scheduler->clock().Now()); });
  scheduler->ScheduleAfter(absl::Hours(1), [&] { fired.push_back(scheduler->clock().Now()); });
  EXPECT_TRUE(scheduler->RunUntil([&] { return fired.size() == 2; }));
  EXPECT_EQ(fired[0] - start, absl::Hours(1));
  EXPECT_EQ(fired[1] - start, absl::Hours(2));
}

}  // namespace
}  // namespace muster
