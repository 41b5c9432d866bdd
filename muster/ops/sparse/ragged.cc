// RaggedTensorToSparse: rows of different lengths, given by where they end, as a sparse tensor.
#include <algorithm>
#include <vector>

#include "muster/ops/op.h"

namespace muster {
namespace {

// The splits of one level, checked: from 0, not decreasing, up to `size`.
absl::Status CheckSplits(const Dims& splits, int64_t size) {
  if (splits.empty()) return InvalidArgument("ragged splits may not be empty.");
  if (splits[0] != 0)
    return InvalidArgument("First value of ragged splits must be 0, but it is ", splits[0]);
  for (size_t i = 1; i < splits.size(); ++i) {
    if (splits[i] < splits[i - 1]) {
      return InvalidArgument("Ragged splits should be non decreasing, but we got ", splits[i - 1],
                             " followed by ", splits[i]);
    }
  }
  if (splits.back() != size) {
    return InvalidArgument(
        "Final value of ragged splits must match the length the corresponding ragged values.");
  }
  return absl::OkStatus();
}

absl::Status ToSparse(KernelContext& c) {
  const int levels = c.num_inputs() - 1;
  const Tensor& values = c.input(levels);
  if (values.rank() < 1) return InvalidArgument("rt_dense_values must have rank 1 at least");
  std::vector<Dims> splits;
  for (int i = 0; i < levels; ++i) {
    ASSIGN_OR_RETURN(Dims level, IntegerVector(c.input(i), "rt_nested_splits"));
    splits.push_back(std::move(level));
  }
  for (int i = 0; i < levels; ++i) {
    RETURN_IF_ERROR(CheckSplits(splits[i], i + 1 < levels
                                               ? static_cast<int64_t>(splits[i + 1].size()) - 1
                                               : values.dim(0)));
  }
  const int inner_rank = values.rank() - 1;
  const int rank = levels + 1 + inner_rank;
  std::vector<int64_t> shape = {static_cast<int64_t>(splits[0].size()) - 1};
  for (const Dims& level : splits) {
    int64_t longest = 0;
    for (size_t i = 1; i < level.size(); ++i) longest = std::max(longest, level[i] - level[i - 1]);
    shape.push_back(longest);
  }
  for (int i = 1; i < values.rank(); ++i) shape.push_back(values.dim(i));

  const int64_t inner = values.shape().ElementsIn(1, values.rank());
  ASSIGN_OR_RETURN(const Shape index_shape, Shape::Make({values.num_elements(), rank}));
  ASSIGN_OR_RETURN(Tensor* const indices, c.AllocateOutput(0, index_shape));
  int64_t* to = indices->data<int64_t>();
  // Where each value is on each level, as its number goes up.
  std::vector<int64_t> row(static_cast<size_t>(levels), 0);
  for (int64_t i = 0; i < values.dim(0); ++i) {
    int64_t at = i;
    std::vector<int64_t> place(static_cast<size_t>(levels) + 1);
    for (int level = levels - 1; level >= 0; --level) {
      while (splits[level][row[level] + 1] <= at) ++row[level];
      place[level + 1] = at - splits[level][row[level]];
      at = row[level];
    }
    place[0] = at;
    for (int64_t k = 0; k < inner; ++k, to += rank) {
      std::copy(place.begin(), place.end(), to);
      int64_t rest = k;
      for (int d = values.rank() - 1; d >= 1; --d) {
        to[levels + d] = rest % values.dim(d);
        rest /= values.dim(d);
      }
    }
  }
  c.SetOutput(1, values.Reshaped(Shape({values.num_elements()})));
  c.SetOutput(2, Tensor::Vector<int64_t>(shape));
  return absl::OkStatus();
}

absl::Status ToSparseShapes(ShapeContext& c) {
  const int levels = c.num_inputs() - 1;
  for (int i = 0; i < levels; ++i) RETURN_IF_ERROR(c.WithRank(c.input(i), 1).status());
  ASSIGN_OR_RETURN(const PartialShape values, c.WithRankAtLeast(c.input(levels), 1));
  const int64_t rank = values.known_rank() ? values.rank() + levels : -1;
  c.SetOutput(0, PartialShape::Matrix(-1, rank));
  c.SetOutput(1, PartialShape::Vector(-1));
  c.SetOutput(2, PartialShape::Vector(rank));
  return absl::OkStatus();
}

DEFINE_OP(RaggedTensorToSparse) {
  op.Attr("RAGGED_RANK: int >= 1")
      .Attr("T: type")
      .Attr("Tsplits: {int32, int64} = DT_INT64")
      .Input("rt_nested_splits: RAGGED_RANK * Tsplits")
      .Input("rt_dense_values: T")
      .Output("sparse_indices: int64")
      .Output("sparse_values: T")
      .Output("sparse_dense_shape: int64")
      .Doc("Rows of different lengths as a sparse tensor.")
      .Shape(ToSparseShapes)
      .Cpu(ToSparse);
}

}  // namespace
}  // namespace muster
