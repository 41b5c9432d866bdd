#include "muster/transport/fast/pace.h"

#include <gtest/gtest.h>

namespace muster::fast {
namespace {

TEST(PaceTest, WhatComesSoonIsWaitedForAwake) {
  Pace pace;
  EXPECT_FALSE(pace.is_quick());
  for (int i = 0; i < 4; ++i) pace.NoteSleep(Pace::kAwakeNanos);
  EXPECT_TRUE(pace.is_quick());
}

TEST(PaceTest, WhatComesLateIsNot) {
  Pace pace;
  for (int i = 0; i < 100; ++i) pace.NoteSleep(Pace::kAwakeNanos);
  for (int i = 0; i < 5; ++i) pace.NoteAwake(false);
  EXPECT_FALSE(pace.is_quick());
  // However long it was so: it is soon found out that it has changed.
  for (int i = 0; i < 100; ++i) pace.NoteSleep(100 * Pace::kAwakeNanos);
  for (int i = 0; i < 12; ++i) pace.NoteSleep(Pace::kAwakeNanos);
  EXPECT_TRUE(pace.is_quick());
}

TEST(PaceTest, OneInThreeIsEnough) {
  Pace pace;
  for (int i = 0; i < 8; ++i) pace.NoteAwake(true);
  for (int i = 0; i < 30; ++i) {
    pace.NoteAwake(false);
    pace.NoteAwake(false);
    pace.NoteAwake(true);
  }
  EXPECT_TRUE(pace.is_quick());
}

}  // namespace
}  // namespace muster::fast
