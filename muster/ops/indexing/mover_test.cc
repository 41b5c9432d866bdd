#include "muster/ops/indexing/mover.h"

#include "gtest/gtest.h"

namespace muster {
namespace {

TEST(EmbeddedBox, WritesBetweenTheBorders) {
  const StridedBox box = EmbeddedBox({{5, 1, 1, 3}, {8, 2, 2, 3}});
  EXPECT_EQ(box.dims, Dims({3, 3}));
  EXPECT_EQ(box.from_strides, Dims({3, 1}));
  EXPECT_EQ(box.to_strides, Dims({8, 2}));
  EXPECT_EQ(box.to_offset, 10);
}

TEST(EmbeddedBox, StepsBackwards) {
  const StridedBox box = EmbeddedBox({{6, 5, -2, 3}});
  EXPECT_EQ(box.to_strides, Dims({-2}));
  EXPECT_EQ(box.to_offset, 5);
}

TEST(EmbeddedBox, NeverTakesTheStepOfASingleElement) {
  const StridedBox box = EmbeddedBox({{4, 1, int64_t{1} << 62, 1}, {1 << 20, 0, 1, 1 << 20}});
  EXPECT_EQ(box.to_strides, Dims({0, 1}));
  EXPECT_EQ(box.to_offset, 1 << 20);
}

TEST(EmbeddedBox, OfNothingHasNoOffset) {
  EXPECT_EQ(EmbeddedBox({{4, -1, -1, 0}, {3, 1, 1, 2}}).to_offset, 0);
}

}  // namespace
}  // namespace muster
