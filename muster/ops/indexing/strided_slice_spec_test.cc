#include "muster/ops/indexing/strided_slice_spec.h"

#include <limits>

#include "gtest/gtest.h"

namespace muster {
namespace {

constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

TEST(StridedSliceSpec, EllipsisTakesWhatIsLeft) {
  // x[1, ..., None, ::-2]
  const StridedSliceMasks masks = {
      .begin = 8, .end = 8, .ellipsis = 2, .new_axis = 4, .shrink_axis = 1};
  const auto spec = ResolveStridedSlice(PartialShape({2, 3, -1, 5}), Dims{1, 0, 0, 0},
                                        Dims{2, 0, 0, 0}, Dims{1, 1, 1, -2}, masks);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->result, PartialShape({3, -1, 1, 3}));
  EXPECT_EQ(spec->begin[3], 4);
}

TEST(StridedSliceSpec, ExtremeIndicesAreClamped) {
  const auto spec = ResolveStridedSlice(PartialShape({4}), Dims{kMin}, Dims{kMax}, Dims{kMax},
                                        StridedSliceMasks());
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->result, PartialShape({1}));
}

TEST(StridedSliceSpec, UnknownBoundsKeepTheRank) {
  const auto spec = ResolveStridedSlice(PartialShape({4, 5}), std::nullopt, std::nullopt,
                                        Dims{1, 1}, {.shrink_axis = 1});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->result, PartialShape({-1}));
}

TEST(StridedSliceSpec, BadSpecificationsAreErrors) {
  const PartialShape shape({4});
  EXPECT_FALSE(ResolveStridedSlice(shape, Dims{0}, Dims{1}, Dims{0}, StridedSliceMasks()).ok());
  EXPECT_FALSE(ResolveStridedSlice(shape, Dims{4}, Dims{5}, Dims{1}, {.shrink_axis = 1}).ok());
  EXPECT_FALSE(
      ResolveStridedSlice(shape, Dims{0, 0}, Dims{1, 1}, Dims{1, 1}, {.ellipsis = 3}).ok());
  EXPECT_FALSE(
      ResolveStridedSlice(shape, Dims{0, 0}, Dims{1, 1}, Dims{1, 1}, StridedSliceMasks()).ok());
}

}  // namespace
}  // namespace muster
