#include "muster/base/threads/blocking_threads.h"

#include <filesystem>
#include <iterator>
#include <latch>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include <gtest/gtest.h>
#include <unistd.h>

#include "muster/base/mutex.h"

namespace muster {
namespace {

BlockingThreads::Options Options(int threads, size_t waiting) {
  BlockingThreads::Options options;
  options.max_threads = threads;
  options.max_waiting = waiting;
  return options;
}

Caller At(const std::string& host, int port) {
  Caller caller;
  caller.name = absl::StrCat(host, ":", port);
  caller.host = host;
  caller.role = Caller::Role::kClient;
  return caller;
}

// Tasks that block until they are released.
class Blocked {
 public:
  ~Blocked() {
    release_.count_down();
    MutexLock lock(mutex_);
    while (ended_ < started_) changed_.Wait(mutex_);
  }
  absl::Status Add(BlockingThreads& threads, const Caller& caller) {
    return threads
        .Run(caller,
             [this] {
               {
                 MutexLock lock(mutex_);
                 ++running_;
                 changed_.NotifyAll();
               }
               release_.wait();
               MutexLock lock(mutex_);
               ++ended_;
               changed_.NotifyAll();
             })
        .status();
  }
  // Adds as many and waits until that many run.
  void Add(BlockingThreads& threads, const Caller& caller, int count, int expected) {
    int target;
    {
      MutexLock lock(mutex_);
      started_ += count;
      target = running_ + expected;
    }
    for (int i = 0; i < count; ++i) ASSERT_TRUE(Add(threads, caller).ok());
    MutexLock lock(mutex_);
    while (running_ < target) changed_.Wait(mutex_);
  }
  int running() {
    MutexLock lock(mutex_);
    return running_;
  }

 private:
  std::latch release_{1};
  Mutex mutex_;
  CondVar changed_;
  int started_ ABSL_GUARDED_BY(mutex_) = 0;
  int running_ ABSL_GUARDED_BY(mutex_) = 0;
  int ended_ ABSL_GUARDED_BY(mutex_) = 0;
};

// Waits for it.
void RunOneFor(BlockingThreads& threads, const Caller& caller) {
  std::latch done(1);
  ASSERT_TRUE(threads.Run(caller, [&] { done.count_down(); }).ok());
  done.wait();
}

TEST(BlockingThreadsTest, BlockedTasksOfOneCallerDoNotHoldUpOthers) {
  BlockingThreads threads(Options(8, 100));
  Blocked blocked;
  blocked.Add(threads, At("a", 1), 50, 4);
  for (int i = 0; i < 20; ++i) RunOneFor(threads, At("b", i));
  // Of the other four a second caller has two, a third one: there is always a thread left.
  blocked.Add(threads, At("b", 1), 50, 2);
  blocked.Add(threads, At("c", 1), 50, 1);
  EXPECT_EQ(blocked.running(), 7);
  for (int i = 0; i < 20; ++i) RunOneFor(threads, At("d", i));
  EXPECT_EQ(blocked.running(), 7);
}

TEST(BlockingThreadsTest, CallersOfOneHostLeaveAQuarterToOthers) {
  BlockingThreads threads(Options(16, 100));
  Blocked blocked;
  blocked.Add(threads, At("a", 1), 50, 8);
  blocked.Add(threads, At("a", 2), 50, 4);
  // As many connections as it likes: the quarter stays.
  for (int port = 3; port < 20; ++port) blocked.Add(threads, At("a", port), 1, 0);
  EXPECT_EQ(blocked.running(), 12);
  blocked.Add(threads, At("b", 1), 1, 1);
  EXPECT_EQ(blocked.running(), 13);
}

TEST(BlockingThreadsTest, WhatWaitsIsBoundedByCallerAndRunsInTheEnd) {
  BlockingThreads threads(Options(4, 3));
  std::latch ended(4);
  {
    Blocked blocked;
    blocked.Add(threads, At("a", 1), 2, 2);
    for (int i = 0; i < 3; ++i)
      ASSERT_TRUE(threads.Run(At("a", 1), [&] { ended.count_down(); }).ok());
    EXPECT_EQ(threads.Run(At("a", 1), [] {}).status().ToString(),
              "RESOURCE_EXHAUSTED: 2 of the 4 threads for blocking work are busy for client a:1, "
              "which may not have more, and 3 of its tasks wait for one");
    ASSERT_TRUE(threads.Run(At("b", 1), [&] { ended.count_down(); }).ok());
  }
  ended.wait();
}

TEST(BlockingThreadsTest, WhatWaitsCanBeWithdrawn) {
  BlockingThreads threads(Options(2, 2));
  std::latch ended(1);
  bool has_run = false;
  {
    Blocked blocked;
    blocked.Add(threads, At("a", 1), 1, 1);
    const auto first = threads.Run(At("a", 1), [&] { has_run = true; });
    ASSERT_TRUE(first.ok());
    ASSERT_TRUE(threads.Run(At("a", 1), [&] { ended.count_down(); }).ok());
    ASSERT_FALSE(threads.Run(At("a", 1), [] {}).ok());
    EXPECT_TRUE(threads.Withdraw(*first));
    EXPECT_FALSE(threads.Withdraw(*first));
    // Its place is free again.
    const auto last = threads.Run(At("a", 1), [&] { has_run = true; });
    ASSERT_TRUE(last.ok());
    EXPECT_TRUE(threads.Withdraw(*last));
  }
  ended.wait();
  EXPECT_FALSE(has_run);
}

// The number of the thread that has run a task.
pid_t RunOne(BlockingThreads& threads) {
  std::latch done(1);
  pid_t thread = 0;
  EXPECT_TRUE(threads
                  .Run(At("a", 1),
                       [&] {
                         thread = gettid();
                         done.count_down();
                       })
                  .ok());
  done.wait();
  return thread;
}

int64_t ThreadsOfTheProcess() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"),
                       std::filesystem::directory_iterator());
}

TEST(BlockingThreadsTest, IdleThreadsAreUsedAgain) {
  constexpr int kTasks = 200;
  BlockingThreads threads(Options(kTasks, 10));
  const int64_t before = ThreadsOfTheProcess();
  for (int i = 0; i < kTasks; ++i) RunOne(threads);
  // The thread of the task before may still be on its way to being idle, but not each time.
  EXPECT_LT(ThreadsOfTheProcess() - before, kTasks / 2);
}

TEST(BlockingThreadsTest, IdleThreadsLeave) {
  BlockingThreads::Options options = Options(100, 10);
  options.idle = absl::Milliseconds(1);
  BlockingThreads threads(options);
  const auto is_there = [](pid_t thread) {
    return std::filesystem::exists(absl::StrCat("/proc/self/task/", thread));
  };
  for (int i = 0; i < 3; ++i) {
    const pid_t thread = RunOne(threads);
    const absl::Time end = absl::Now() + absl::Seconds(30);
    while (is_there(thread) && absl::Now() < end) absl::SleepFor(absl::Milliseconds(1));
    EXPECT_FALSE(is_there(thread)) << "idle for 30 s";
  }
}

TEST(BlockingThreadsTest, WhatWasStartedOutlivesItsOwner) {
  std::latch release(1), done(2);
  {
    BlockingThreads threads(Options(1, 10));
    ASSERT_TRUE(threads
                    .Run(At("a", 1),
                         [&] {
                           release.wait();
                           done.count_down();
                         })
                    .ok());
    ASSERT_TRUE(threads.Run(At("a", 1), [&] { done.count_down(); }).ok());
  }
  release.count_down();
  done.wait();
}

}  // namespace
}  // namespace muster
