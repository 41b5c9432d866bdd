#include "muster/ops/indexing/moving.h"

#include "gtest/gtest.h"

namespace muster {
namespace {

// As moving.cuh has it.
uint32_t Quotient(const QuickDivider& by, uint32_t number) {
  return (static_cast<uint32_t>((uint64_t{number} * by.factor) >> 32) + number) >> by.shift;
}

TEST(QuickDivider, DividesLikeTheProcessor) {
  constexpr uint32_t kMost = (uint32_t{1} << 31) - 1;
  for (const uint32_t divisor :
       {1u, 2u, 3u, 5u, 7u, 10u, 13u, 16u, 641u, 65535u, 65536u, 1000003u, kMost - 1, kMost}) {
    const QuickDivider by(divisor);
    for (const uint32_t near : {0u, divisor, kMost / divisor / 2 * divisor, kMost - 4}) {
      for (uint32_t number = near < 4 ? 0 : near - 4; number <= near + 4 && number <= kMost;
           ++number)
        ASSERT_EQ(Quotient(by, number), number / divisor) << number << " / " << divisor;
    }
  }
}

TEST(RowsAreWide, WantsAddressesAndSizesOf16Bytes) {
  alignas(16) char memory[32];
  EXPECT_TRUE(RowsAreWide(memory, memory + 16, 48));
  EXPECT_FALSE(RowsAreWide(memory, memory + 4, 48));
  EXPECT_FALSE(RowsAreWide(memory, memory + 16, 8));
}

TEST(TupleAxes, AreTheFirstOfAShape) {
  const absl::StatusOr<TupleAxes> axes = TupleAxesOf(Shape({3, 4, 5}), 2);
  ASSERT_EQ(axes.status(), absl::OkStatus());
  EXPECT_EQ(axes->depth, 2);
  EXPECT_EQ(axes->sizes[1], 4);
  EXPECT_FALSE(TupleAxesOf(Shape({1, 1, 1, 1, 1, 1, 1, 1, 1}), 9).ok());
}

}  // namespace
}  // namespace muster
