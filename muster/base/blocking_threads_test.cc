#include "muster/base/blocking_threads.h"

#include <filesystem>
#include <iterator>
#include <latch>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include <gtest/gtest.h>
#include <unistd.h>

namespace muster {
namespace {

BlockingThreads::Options Options(int threads, size_t waiting) {
  BlockingThreads::Options options;
  options.max_threads = threads;
  options.max_waiting = waiting;
  return options;
}

TEST(BlockingThreadsTest, BlockedTasksDoNotHoldUpOthers) {
  BlockingThreads threads(Options(5, 10));
  std::latch release(1), blocked(4), ended(4);
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(threads
                    .Run([&] {
                      blocked.count_down();
                      release.wait();
                      ended.count_down();
                    })
                    .ok());
  }
  blocked.wait();
  for (int i = 0; i < 20; ++i) {
    std::latch done(1);
    ASSERT_TRUE(threads.Run([&] { done.count_down(); }).ok());
    done.wait();
  }
  release.count_down();
  ended.wait();
}

TEST(BlockingThreadsTest, WhatWaitsIsBoundedAndRunsInTheEnd) {
  BlockingThreads threads(Options(2, 3));
  std::latch release(1), blocked(2), ended(5);
  const auto block = [&] {
    blocked.count_down();
    release.wait();
    ended.count_down();
  };
  ASSERT_TRUE(threads.Run(block).ok());
  ASSERT_TRUE(threads.Run(block).ok());
  blocked.wait();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(threads.Run([&] { ended.count_down(); }).ok());
  EXPECT_EQ(
      threads.Run([] {}).ToString(),
      "RESOURCE_EXHAUSTED: All 2 threads for blocking work are busy, and 3 tasks wait for one");
  release.count_down();
  ended.wait();
}

// The number of the thread that has run a task.
pid_t RunOne(BlockingThreads& threads) {
  std::latch done(1);
  pid_t thread = 0;
  EXPECT_TRUE(threads
                  .Run([&] {
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
                    .Run([&] {
                      release.wait();
                      done.count_down();
                    })
                    .ok());
    ASSERT_TRUE(threads.Run([&] { done.count_down(); }).ok());
  }
  release.count_down();
  done.wait();
}

}  // namespace
}  // namespace muster
