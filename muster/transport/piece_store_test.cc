#include "muster/transport/piece_store.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

TEST(PieceStoreTest, GivesEveryByteOnceAndForgets) {
  VirtualClock clock;
  PieceStore store(clock);
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
  VirtualClock clock;
  PieceStore store(clock);
  const uint64_t id = store.Add(Tensor::Vector<uint8_t>({1, 2, 3}));
  ASSERT_EQ(store.Take(id, 2, 5).status(), absl::OkStatus());
  const auto first = store.Take(id, 0, 2);
  ASSERT_EQ(first.status(), absl::OkStatus());
  EXPECT_EQ(first->data()[1], 2);
  EXPECT_EQ(store.size(), 0u);
}

TEST(PieceStoreTest, DropsWhatNobodyFetches) {
  VirtualClock clock;
  PieceStore store(clock);
  store.Add(Tensor::Vector<uint8_t>({1, 2}));
  clock.Advance(PieceStore::kKeep + absl::Seconds(1));
  store.Add(Tensor::Vector<uint8_t>({3}));
  EXPECT_EQ(store.size(), 1u);
}

}  // namespace
}  // namespace muster
