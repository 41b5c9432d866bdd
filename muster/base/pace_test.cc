#include "muster/base/pace.h"

#include <thread>

#include <gtest/gtest.h>

namespace muster {
namespace {

constexpr int64_t kAwakeNanos = 50'000;

TEST(PaceTest, WhatComesSoonIsWaitedForAwake) {
  Pace pace(kAwakeNanos);
  EXPECT_FALSE(pace.is_quick());
  for (int i = 0; i < 2; ++i) pace.NoteSleep(kAwakeNanos);
  EXPECT_TRUE(pace.is_quick());
}

TEST(PaceTest, WhatComesLateIsNot) {
  Pace pace(kAwakeNanos);
  for (int i = 0; i < 100; ++i) pace.NoteSleep(kAwakeNanos);
  for (int i = 0; i < 5; ++i) pace.NoteAwake(false);
  EXPECT_FALSE(pace.is_quick());
  // However long it was so: it is soon found out that it has changed.
  for (int i = 0; i < 100; ++i) pace.NoteSleep(100 * kAwakeNanos);
  for (int i = 0; i < 6; ++i) pace.NoteSleep(kAwakeNanos);
  EXPECT_TRUE(pace.is_quick());
}

TEST(PaceTest, OneInThreeIsEnough) {
  Pace pace(kAwakeNanos);
  for (int i = 0; i < 8; ++i) pace.NoteAwake(true);
  for (int i = 0; i < 30; ++i) {
    pace.NoteAwake(false);
    pace.NoteAwake(false);
    pace.NoteAwake(true);
  }
  EXPECT_TRUE(pace.is_quick());
}

TEST(AwakeTest, OneForEachCoreUnlessThereIsOneOnly) {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  int awake = 0;
  while (awake <= cores && Awake::TryBegin()) ++awake;
  EXPECT_EQ(awake, cores > 1 ? cores : 0);
  for (; awake > 0; --awake) Awake::End();
  EXPECT_EQ(Awake::TryBegin(), cores > 1);
  if (cores > 1) Awake::End();
}

}  // namespace
}  // namespace muster
