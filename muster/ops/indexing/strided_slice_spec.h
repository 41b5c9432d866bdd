// Python's indexing x[1:3, ..., None, -1, ::2] as StridedSlice and its relatives encode it: three
// index vectors and five bit masks over their positions.
#pragma once

#include <optional>
#include <vector>

#include "muster/base/status.h"
#include "muster/graph/graph.h"
#include "muster/tensor/tensor.h"

namespace muster {

struct StridedSliceMasks {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t ellipsis = 0;
  int64_t new_axis = 0;
  int64_t shrink_axis = 0;

  static absl::StatusOr<StridedSliceMasks> FromAttrs(const Node& node);
};

// The resolved form, one entry per dimension of the input.
struct StridedSliceSpec {
  Dims begin;
  Dims end;
  Dims strides;
  // Sizes of the sliced box, before axes are shrunk or added; -1 where not known.
  PartialShape box;
  // Shape of the result, and the input dimension behind each of its axes (-1: a new axis).
  PartialShape result;
  std::vector<int> result_dims;
  bool is_identity = true;
  // Only rows of dimension 0 are selected, with step 1.
  bool is_row_range = true;
};

// `begin` and `end` may be missing while a graph is built; known values must be as many as
// `strides`. Requires: input.known_rank(). InvalidArgument in TensorFlow's words for bad
// specifications.
absl::StatusOr<StridedSliceSpec> ResolveStridedSlice(const PartialShape& input,
                                                     const std::optional<Dims>& begin,
                                                     const std::optional<Dims>& end,
                                                     const Dims& strides,
                                                     const StridedSliceMasks& masks);

// The same from index tensors (int16, int32 or int64 vectors).
absl::StatusOr<StridedSliceSpec> ResolveStridedSlice(const Shape& input, const Tensor& begin,
                                                     const Tensor& end, const Tensor& strides,
                                                     const StridedSliceMasks& masks);

// The elements of an int16, int32 or int64 vector.
absl::StatusOr<Dims> SliceIndices(const Tensor& tensor);

}  // namespace muster
