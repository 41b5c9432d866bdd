#include "muster/params/change_log.h"

#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Optional;

TEST(ChangeLogTest, RowsSinceAnEpochAscendAndAreThereOnce) {
  ChangeLog log(10);
  log.AddWatch(1, 10);
  log.NoteRows(11, {7, 3, 7}, 1000);
  log.NoteRows(12, {5, 3}, 1000);
  EXPECT_THAT(log.RowsSince(10, 1), Optional(ElementsAre(3, 5, 7)));
  EXPECT_THAT(log.RowsSince(11, 1), Optional(ElementsAre(3, 5)));
  EXPECT_THAT(log.RowsSince(12, 1), Optional(IsEmpty()));
  EXPECT_EQ(log.RowsSince(9, 1), std::nullopt);  // from before the log
}

TEST(ChangeLogTest, AWholeChangeHidesTheRowsBeforeIt) {
  ChangeLog log(0);
  log.AddWatch(1, 0);
  log.NoteRows(1, {1}, 1000);
  log.NoteWhole(2);
  log.NoteRows(3, {4}, 1000);
  EXPECT_EQ(log.RowsSince(1, 1), std::nullopt);
  EXPECT_THAT(log.RowsSince(2, 1), Optional(ElementsAre(4)));
}

TEST(ChangeLogTest, WhatAllWatchesHaveSeenIsForgotten) {
  ChangeLog log(0);
  log.AddWatch(1, 0);
  log.AddWatch(2, 0);
  log.NoteRows(1, {1, 2}, 1000);
  log.NoteRows(2, {3}, 1000);
  log.RowsSince(2, 1);
  EXPECT_EQ(log.num_noted(), 3);
  EXPECT_THAT(log.RowsSince(1, 2), Optional(ElementsAre(3)));
  EXPECT_EQ(log.num_noted(), 1);
  EXPECT_TRUE(log.RemoveWatch(2));
  EXPECT_EQ(log.num_noted(), 0);
  EXPECT_FALSE(log.RemoveWatch(1));
}

TEST(ChangeLogTest, MemoryIsBounded) {
  constexpr int64_t kRows = 10000;
  const int64_t limit = ChangeLog::RowsAtMost(kRows);
  EXPECT_EQ(limit, kRows / 4);
  ChangeLog log(0);
  log.AddWatch(1, 0);
  // The same few rows for ever.
  for (int64_t epoch = 1; epoch <= 100000; ++epoch) {
    log.NoteRows(epoch, {epoch % 5, 9}, kRows);
    ASSERT_LE(log.num_noted(), 2 * limit);
  }
  EXPECT_THAT(log.RowsSince(0, 1), Optional(ElementsAre(0, 1, 2, 3, 4, 9)));
  // More of them than is worth it.
  for (int64_t epoch = 100001; epoch <= 110000; ++epoch) {
    log.NoteRows(epoch, {epoch % kRows}, kRows);
    ASSERT_LE(log.num_noted(), 2 * limit);
  }
  EXPECT_EQ(log.RowsSince(100000, 1), std::nullopt);
  std::vector<int64_t> all(kRows);
  std::iota(all.begin(), all.end(), 0);
  log.NoteRows(110001, all, kRows);
  EXPECT_EQ(log.num_noted(), 0);
  EXPECT_EQ(log.RowsSince(110000, 1), std::nullopt);
}

}  // namespace
}  // namespace muster
