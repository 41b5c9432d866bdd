#include "muster/ops/sparse/sparse_input.h"

#include "absl/strings/str_join.h"

namespace muster {

absl::Status CheckSparse(const Tensor& indices, const Tensor& values, const Tensor& shape) {
  if (indices.rank() != 2) {
    return InvalidArgument("Input indices should be a matrix but received shape ",
                           indices.shape().ToString());
  }
  if (values.rank() != 1) {
    return InvalidArgument("Input values should be a vector but received shape ",
                           values.shape().ToString());
  }
  if (shape.rank() != 1) {
    return InvalidArgument("Input shape should be a vector but received shape ",
                           shape.shape().ToString());
  }
  if (indices.dim(0) != values.dim(0)) {
    return InvalidArgument("Number of elements in indices (", indices.dim(0), ") and values (",
                           values.dim(0), ") do not match");
  }
  if (indices.dim(1) != shape.dim(0)) {
    return InvalidArgument("Index rank (", indices.dim(1), ") and shape rank (", shape.dim(0),
                           ") do not match");
  }
  ASSIGN_OR_RETURN(const Dims sizes, IntegerValues(shape));
  return Shape::Make(sizes).status();
}

absl::Status CheckOrder(const Tensor& indices) {
  const absl::Span<const int64_t> all = indices.values<int64_t>();
  const int64_t rank = indices.dim(1);
  for (int64_t i = 1; i < indices.dim(0); ++i) {
    const absl::Span<const int64_t> before = all.subspan((i - 1) * rank, rank);
    const absl::Span<const int64_t> at = all.subspan(i * rank, rank);
    if (before < at) continue;
    return InvalidArgument("indices[", i, "] = [", absl::StrJoin(at, ","), "] is ",
                           before == at ? "repeated"
                                        : "out of order. Many sparse ops require sorted indices.\n"
                                          "    Use `tf.sparse.reorder` to create a correctly "
                                          "ordered copy.\n\n");
  }
  return absl::OkStatus();
}

absl::Status CheckIndices(const Tensor& indices, absl::Span<const int64_t> shape) {
  const int64_t* at = indices.data<int64_t>();
  const auto rank = static_cast<int64_t>(shape.size());
  for (int64_t i = 0; i < indices.dim(0); ++i, at += rank) {
    for (int64_t d = 0; d < rank; ++d) {
      if (at[d] >= 0 && at[d] < shape[d]) continue;
      return InvalidArgument("indices[", i, "] = [", absl::StrJoin(at, at + rank, ","),
                             "] is out of bounds: need 0 <= index < [", absl::StrJoin(shape, ","),
                             "]");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<SparseDims> InferSparse(const ShapeContext& c) {
  ASSIGN_OR_RETURN(const PartialShape indices, c.WithRank(c.input(0), 2));
  ASSIGN_OR_RETURN(const PartialShape values, c.WithRank(c.input(1), 1));
  ASSIGN_OR_RETURN(const PartialShape shape, c.WithRank(c.input(2), 1));
  const auto dim = [](const PartialShape& known, int i) {
    return known.known_rank() ? known.dim(i) : -1;
  };
  SparseDims dims;
  ASSIGN_OR_RETURN(dims.count, ShapeContext::MergeDims(dim(indices, 0), dim(values, 0)));
  ASSIGN_OR_RETURN(dims.rank, ShapeContext::MergeDims(dim(indices, 1), dim(shape, 0)));
  return dims;
}

}  // namespace muster
