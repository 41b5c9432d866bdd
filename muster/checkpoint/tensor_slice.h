// Parts of tensors: how partitioned variables are saved, and asked for. A slice has a start and a
// length in every dimension.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"

#include "muster/base/status.h"
#include "muster/tensor/shape.h"
#include "muster/tensor/tensor.h"

namespace muster {

struct SliceExtent {
  static constexpr int64_t kWhole = -1;
  int64_t start = 0;
  int64_t length = kWhole;  // kWhole: all of the dimension, with start 0
  friend bool operator==(const SliceExtent&, const SliceExtent&) = default;
};

struct TensorSlice {
  std::vector<SliceExtent> extents;

  static TensorSlice Whole(int rank) {
    return TensorSlice{std::vector<SliceExtent>(static_cast<size_t>(rank))};
  }
  // "0,2:-" : start,length of each dimension, or - for all of it.
  static absl::StatusOr<TensorSlice> Parse(absl::string_view text);
  std::string ToString() const;
  // The same part of a tensor of that shape with explicit lengths. InvalidArgument when it is out
  // of bounds, Internal when the ranks differ, as in TensorFlow.
  absl::StatusOr<TensorSlice> Resolved(const Shape& full) const;
  // The shape of the part.
  absl::StatusOr<Shape> ShapeWithin(const Shape& full) const;
  friend bool operator==(const TensorSlice&, const TensorSlice&) = default;
};

// The strings that SaveV2 and RestoreV2 take: "4 3 0,2:-" is rows 0 and 1 of a [4,3] tensor.
struct ShapeAndSlice {
  Shape full_shape;
  TensorSlice slice;
  Shape slice_shape;
};
absl::StatusOr<ShapeAndSlice> ParseShapeAndSlice(absl::string_view text);

// What two resolved slices have in common, or nothing.
std::optional<TensorSlice> Intersection(const TensorSlice& a, const TensorSlice& b);
int64_t ElementsIn(const TensorSlice& resolved);

// Which of the `stored` slices (resolved) make up `wanted` (resolved): their indices, or nothing
// when a part is missing. Internal when two of them overlap.
absl::StatusOr<std::optional<std::vector<size_t>>> Cover(const std::vector<TensorSlice>& stored,
                                                         const TensorSlice& wanted);

// Copies what `from`, at `from_slice` of the whole, and `to`, at `to_slice`, have in common.
// Requires: resolved slices of one tensor with the tensors' shapes, equal types, no resources.
void CopyOverlap(const Tensor& from, const TensorSlice& from_slice, const TensorSlice& to_slice,
                 Tensor& to);

// The key of a slice in an index: names and numbers such that keys sort as what they stand for.
std::string SliceKey(absl::string_view name, const TensorSlice& slice);
// Names of tensors never begin like the keys of slices.
inline bool IsSliceKey(absl::string_view key) {
  return !key.empty() && key.front() == '\0';
}

}  // namespace muster
