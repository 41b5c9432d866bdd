#include "muster/transport/messages/piece_store.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

TEST(PieceStoreTest, GivesEveryByteOnceAndForgets) {
  const auto scheduler = SimulatedScheduler::Create(1);
  PieceStore store(*scheduler);
  const uint64_t id = store.Add(Tensor::Vector<uint8_t>({1, 2, 3, 4, 5}));
  const auto first = store.Take(id, 0, 3);
  ASSERT_EQ(first.status(), absl::OkStatus());
  EXPECT_EQ(first->length_bytes(), 3u);
  EXPECT_EQ(first->data()[2], 3);
  EXPECT_EQ(store.Take(id, 5, 1).status().code(), absl::StatusCode::kOutOfRange);
  const auto last = store.Take(id, 3, UINT64_MAX);
  ASSERT_EQ(last.status(), absl::OkStatus());
  EXPECT_EQ(last->length_bytes(), 2u);
  EXPECT_EQ(last->data()[1], 5);
  EXPECT_EQ(store.Take(id, 0, 1).status().code(), absl::StatusCode::kNotFound);
}

TEST(PieceStoreTest, PiecesMayBeTakenInAnyOrder) {
  const auto scheduler = SimulatedScheduler::Create(1);
  PieceStore store(*scheduler);
  const uint64_t id = store.Add(Tensor::Vector<uint8_t>({1, 2, 3}));
  ASSERT_EQ(store.Take(id, 2, 5).status(), absl::OkStatus());
  const auto first = store.Take(id, 0, 2);
  ASSERT_EQ(first.status(), absl::OkStatus());
  EXPECT_EQ(first->data()[1], 2);
  EXPECT_EQ(store.size(), 0u);
}

TEST(PieceStoreTest, DropsWhatNobodyFetches) {
  const auto scheduler = SimulatedScheduler::Create(1);
  PieceStore store(*scheduler);
  const uint64_t fetched = store.Add(Tensor::Vector<uint8_t>({1, 2, 3}));
  store.Add(Tensor::Vector<uint8_t>({4, 5}));
  scheduler->ScheduleAfter(PieceStore::kKeep / 2,
                           [&] { EXPECT_TRUE(store.Take(fetched, 0, 1).ok()); });
  EXPECT_TRUE(scheduler->RunUntil([&] { return store.size() == 1; }));
  EXPECT_TRUE(store.Take(fetched, 1, 1).ok()) << "a piece of it has been fetched since";
  EXPECT_TRUE(scheduler->RunUntil([&] { return store.size() == 0; }));
  EXPECT_EQ(store.Take(fetched, 2, 1).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace muster
