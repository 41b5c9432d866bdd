#include "muster/base/threads/pace.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

constexpr int64_t kLongestSpinNanos = 50'000;

TEST(PaceTest, WhatComesSoonIsSpunFor) {
  Pace pace(kLongestSpinNanos);
  EXPECT_FALSE(pace.is_quick());
  for (int i = 0; i < 2; ++i) pace.NoteSleep(kLongestSpinNanos);
  EXPECT_TRUE(pace.is_quick());
}

TEST(PaceTest, WhatComesLateIsNot) {
  Pace pace(kLongestSpinNanos);
  for (int i = 0; i < 100; ++i) pace.NoteSleep(kLongestSpinNanos);
  for (int i = 0; i < 5; ++i) pace.NoteSpin(false);
  EXPECT_FALSE(pace.is_quick());
  // However long it was so: it is soon found out that it has changed.
  for (int i = 0; i < 100; ++i) pace.NoteSleep(100 * kLongestSpinNanos);
  for (int i = 0; i < 6; ++i) pace.NoteSleep(kLongestSpinNanos);
  EXPECT_TRUE(pace.is_quick());
}

TEST(PaceTest, OneInThreeIsEnough) {
  Pace pace(kLongestSpinNanos);
  for (int i = 0; i < 8; ++i) pace.NoteSpin(true);
  for (int i = 0; i < 30; ++i) {
    pace.NoteSpin(false);
    pace.NoteSpin(false);
    pace.NoteSpin(true);
  }
  EXPECT_TRUE(pace.is_quick());
}

}  // namespace
}  // namespace muster
