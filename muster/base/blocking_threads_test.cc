#include "muster/base/blocking_threads.h"

#include <atomic>
#include <latch>
#include <set>
#include <thread>

#include <gtest/gtest.h>

#include "muster/base/mutex.h"

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

TEST(BlockingThreadsTest, IdleThreadsAreUsedAgainAndLeave) {
  BlockingThreads::Options options = Options(100, 10);
  options.idle = absl::Milliseconds(1);
  BlockingThreads threads(options);
  for (int i = 0; i < 200; ++i) {
    std::latch done(1);
    ASSERT_TRUE(threads.Run([&] { done.count_down(); }).ok());
    done.wait();
    if (i % 50 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(3));
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
