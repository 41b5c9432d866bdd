// SparseFillEmptyRows and its gradient.
#include <algorithm>

#include "muster/graph/gradients/gradient_context.h"
#include "muster/ops/sparse/sparse_input.h"

namespace muster {
namespace {

absl::Status CheckFill(const Tensor& indices, const Tensor& values, const Tensor& shape,
                       const Tensor& fallback) {
  if (shape.rank() != 1)
    return InvalidArgument("dense_shape must be a vector, saw: ", shape.shape().ToString());
  if (indices.rank() != 2)
    return InvalidArgument("indices must be a matrix, saw: ", indices.shape().ToString());
  if (values.rank() != 1)
    return InvalidArgument("values must be a vector, saw: ", values.shape().ToString());
  if (fallback.rank() != 0)
    return InvalidArgument("default_value must be a scalar, saw: ", fallback.shape().ToString());
  if (indices.dim(0) != values.dim(0)) {
    return InvalidArgument("The length of `values` (", values.dim(0),
                           ") must match the first dimension of `indices` (", indices.dim(0), ").");
  }
  if (indices.dim(1) != shape.dim(0)) {
    return InvalidArgument("The length of `dense_shape` (", shape.dim(0),
                           ") must match the second dimension of `indices` (", indices.dim(1),
                           ").");
  }
  if (shape.dim(0) == 0) return InvalidArgument("Dense shape cannot be empty.");
  return absl::OkStatus();
}

absl::Status RunFill(KernelContext& c) {
  const Tensor& indices = c.input(0);
  const Tensor& values = c.input(1);
  const Tensor& fallback = c.input(3);
  RETURN_IF_ERROR(CheckFill(indices, values, c.input(2), fallback));
  const int64_t rows = c.input(2).data<int64_t>()[0];
  const int64_t count = indices.dim(0);
  const int64_t rank = indices.dim(1);
  const int64_t* at = indices.data<int64_t>();
  if (rows < 0) return InvalidArgument("dense_shape[0] must be >= 0, saw: ", rows);
  if (rows == 0 && count != 0) {
    return InvalidArgument("Received SparseTensor with dense_shape[0] = 0 but indices.shape[0] = ",
                           count);
  }
  ASSIGN_OR_RETURN(Tensor* const empty, c.AllocateOutput(2, Shape({rows})));
  ASSIGN_OR_RETURN(Tensor* const map, c.AllocateOutput(3, Shape({count})));
  ASSIGN_OR_RETURN(Tensor places, c.AllocateTemporary(DType::kInt64, Shape({rows})));
  int64_t* const next = places.data<int64_t>();  // entries per row, then where they go
  std::fill_n(next, rows, int64_t{0});
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = at[i * rank];
    if (row < 0 || row >= rows)
      return InvalidArgument("indices(", i, ", 0) is invalid: ", row, " >= ", rows);
    ++next[row];
  }
  int64_t total = 0;
  for (int64_t row = 0; row < rows; ++row) {
    empty->data<bool>()[row] = next[row] == 0;
    const int64_t entries = std::max<int64_t>(next[row], 1);
    next[row] = total;
    total += entries;
  }
  ASSIGN_OR_RETURN(const Shape shape, Shape::Make({total, rank}));
  ASSIGN_OR_RETURN(Tensor* const out, c.AllocateOutput(0, shape));
  ASSIGN_OR_RETURN(Tensor* const filled, c.AllocateOutput(1, Shape({total})));
  std::fill_n(out->data<int64_t>(), total * rank, int64_t{0});
  const auto size = static_cast<int64_t>(DTypeSize(values.dtype()));
  for (int64_t row = 0; row < rows; ++row) {
    if (!empty->data<bool>()[row]) continue;
    out->data<int64_t>()[next[row] * rank] = row;
    CopyElements(values.dtype(), fallback.raw(), filled->raw() + next[row] * size, 1);
  }
  for (int64_t i = 0; i < count; ++i) {
    const int64_t to = next[at[i * rank]]++;
    std::copy_n(at + i * rank, rank, out->data<int64_t>() + to * rank);
    CopyElements(values.dtype(), values.raw() + i * size, filled->raw() + to * size, 1);
    map->data<int64_t>()[i] = to;
  }
  return absl::OkStatus();
}

template <typename T>
absl::Status RunGrad(KernelContext& c) {
  using Sum = typename SumType<T>::type;
  const Tensor& map = c.input(0);
  const Tensor& gradient = c.input(1);
  if (map.rank() != 1)
    return InvalidArgument("reverse_index_map must be a vector, saw: ", map.shape().ToString());
  if (gradient.rank() != 1)
    return InvalidArgument("grad_values must be a vector, saw: ", gradient.shape().ToString());
  const int64_t full = gradient.dim(0);
  ASSIGN_OR_RETURN(Tensor* const d_values, c.AllocateOutput(0, map.shape()));
  std::vector<bool> visited(static_cast<size_t>(full));
  for (int64_t i = 0; i < map.dim(0); ++i) {
    const int64_t from = map.data<int64_t>()[i];
    if (from < 0 || from >= full)
      return InvalidArgument("Elements in reverse index must be in [0, ", full, ") but got ", from);
    d_values->data<T>()[i] = gradient.data<T>()[from];
    visited[from] = true;
  }
  Sum sum{};
  for (int64_t i = 0; i < full; ++i) {
    if (!visited[i]) sum += static_cast<Sum>(gradient.data<T>()[i]);
  }
  c.SetOutput(1, Tensor::Scalar<T>(static_cast<T>(sum)));
  return absl::OkStatus();
}

absl::Status FillShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(const SparseDims dims, InferSparse(c));
  RETURN_IF_ERROR(c.WithRank(c.input(3), 0).status());
  ASSIGN_OR_RETURN(const PartialShape dense, c.InputAsShape(2));
  c.SetOutput(0, PartialShape::Matrix(-1, dims.rank));
  c.SetOutput(1, PartialShape::Vector(-1));
  c.SetOutput(2, PartialShape::Vector(dense.known_rank() && dense.rank() > 0 ? dense.dim(0) : -1));
  c.SetOutput(3, PartialShape::Vector(dims.count));
  return absl::OkStatus();
}

absl::Status GradShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(const PartialShape map, c.WithRank(c.input(0), 1));
  RETURN_IF_ERROR(c.WithRank(c.input(1), 1).status());
  c.SetOutput(0, map);
  c.SetOutput(1, PartialShape::Scalar());
  return absl::OkStatus();
}

absl::Status FillGradient(GradientContext& c) {
  if (!c.has_dy(1)) return absl::OkStatus();
  Node* const grad = c.Op("SparseFillEmptyRowsGrad", {c.output(3), c.dy(1)}).node;
  c.SetDx(1, Output(grad, 0));
  c.SetDx(3, Output(grad, 1));
  return absl::OkStatus();
}

}  // namespace

DEFINE_OP(SparseFillEmptyRows) {
  op.Attr("T: type")
      .Input("indices: int64")
      .Input("values: T")
      .Input("dense_shape: int64")
      .Input("default_value: T")
      .Output("output_indices: int64")
      .Output("output_values: T")
      .Output("empty_row_indicator: bool")
      .Output("reverse_index_map: int64")
      .Doc("Gives every row without entries one with the default value, in column 0.")
      .Shape(FillShape)
      .Gradient(FillGradient)
      .CpuDTypes("T", AllDTypes(), Stateless(RunFill));
}

DEFINE_OP(SparseFillEmptyRowsGrad) {
  op.Attr("T: type")
      .Input("reverse_index_map: int64")
      .Input("grad_values: T")
      .Output("d_values: T")
      .Output("d_default_value: T")
      .Doc("Gradient of SparseFillEmptyRows.")
      .Shape(GradShape)
      .CpuTypes<Numbers>("T", []<typename T>() { return Stateless(RunGrad<T>); });
}

}  // namespace muster
