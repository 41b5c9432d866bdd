#include "muster/ops/array/concat.h"

#include <algorithm>

#include "muster/ops/indexing/gpu_mover.h"
#include "muster/ops/op.h"

namespace muster {
namespace {

// Where the values and the axis are among a node's inputs.
struct Arguments {
  int first_value;
  int end_value;
  int axis;
};
Arguments ArgumentsOf(const Node& node) {
  const ArgRange values = node.InputRange("values");
  return {values.begin, values.end, values.begin == 0 ? values.end : 0};
}

absl::Status ConcatShape(ShapeContext& c) {
  const Arguments args = ArgumentsOf(c.node());
  RETURN_IF_ERROR(c.WithRank(c.input(args.axis), 0).status());
  ASSIGN_OR_RETURN(const std::optional<int64_t> axis, c.ScalarInput(args.axis));
  if (!axis) {
    int rank = -1;
    for (int i = args.first_value; i < args.end_value; ++i) {
      if (rank >= 0) RETURN_IF_ERROR(c.WithRank(c.input(i), rank).status());
      rank = std::max(rank, c.input(i).rank());
    }
    c.SetOutput(0, rank < 0 ? PartialShape() : PartialShape::OfRank(rank));
    return absl::OkStatus();
  }
  int common_rank = -1;
  for (int i = args.first_value; i < args.end_value; ++i) {
    if (common_rank >= 0) RETURN_IF_ERROR(c.WithRank(c.input(i), common_rank).status());
    common_rank = std::max(common_rank, c.input(i).rank());
  }
  const int64_t min_rank = *axis < 0 ? -*axis : *axis + 1;
  if (min_rank > Shape::kMaxRank) return InvalidArgument("Invalid concatenation axis ", *axis);
  const int at = static_cast<int>(*axis);
  // Not known until an input has a known rank.
  PartialShape before, after;
  int64_t size = 0;
  for (int i = args.end_value - 1; i >= args.first_value; --i) {
    ASSIGN_OR_RETURN(const PartialShape input,
                     c.WithRankAtLeast(c.input(i), static_cast<int>(min_rank)));
    if (!input.known_rank()) {
      size = -1;
      continue;
    }
    const int position = at < 0 ? at + input.rank() : at;
    ASSIGN_OR_RETURN(before, c.Merge(c.Subshape(input, 0, position), before));
    size = c.AddDims(size, input.dim(position));
    ASSIGN_OR_RETURN(after, c.Merge(c.Subshape(input, position + 1), after));
  }
  if (!before.known_rank()) {
    c.SetOutput(0, PartialShape());
    return absl::OkStatus();
  }
  c.SetOutput(0, c.Concatenate(c.Concatenate(before, PartialShape::Vector(size)), after));
  return absl::OkStatus();
}

absl::Status Concat(KernelContext& c, const Mover& mover) {
  const Arguments args = ArgumentsOf(c.node());
  const Tensor& axis_tensor = c.input(args.axis);
  // A vector of one element counts as a scalar, as in TensorFlow.
  if (axis_tensor.rank() > 1 || axis_tensor.num_elements() != 1) {
    return InvalidArgument(args.axis == 0 ? "concat_dim" : "axis",
                           " tensor should be a scalar integer, but got shape ",
                           axis_tensor.shape().ToString());
  }
  ASSIGN_OR_RETURN(const int64_t given_axis, ScalarInteger(axis_tensor.Reshaped(Shape()), "axis"));
  const Shape& first = c.input(args.first_value).shape();
  const int rank = first.rank();
  if (rank == 0)
    return InvalidArgument("ConcatOp : Can't concatenate scalars (use tf.stack instead)");
  const int64_t axis = given_axis < 0 ? given_axis + rank : given_axis;
  if (axis < 0 || axis >= rank) {
    return InvalidArgument("ConcatOp : Expected concatenating dimensions in the range [", -rank,
                           ", ", rank, "), but got ", given_axis);
  }
  const int at = static_cast<int>(axis);
  Dims dims = first.dims();
  for (int i = args.first_value + 1; i < args.end_value; ++i) {
    const Shape& shape = c.input(i).shape();
    const int number = i - args.first_value;
    if (shape.rank() == 0)
      return InvalidArgument("ConcatOp : Can't concatenate scalars (use tf.stack instead)");
    if (shape.rank() != rank) {
      return InvalidArgument("ConcatOp : Ranks of all input tensors should match: shape[0] = ",
                             first.ToString(), " vs. shape[", number, "] = ", shape.ToString());
    }
    for (int k = 0; k < rank; ++k) {
      if (k != at && shape.dim(k) != first.dim(k)) {
        return InvalidArgument("ConcatOp : Dimensions of inputs should match: shape[0] = ",
                               first.ToString(), " vs. shape[", number, "] = ", shape.ToString());
      }
    }
    dims[at] += shape.dim(at);
  }
  ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
  // All but one empty: nothing to copy.
  int only = -1, filled = 0;
  for (int i = args.first_value; i < args.end_value; ++i) {
    if (c.input(i).num_elements() > 0) {
      only = i;
      ++filled;
    }
  }
  if (filled == 1) {
    c.SetOutput(0, c.TakeInput(only));
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, shape));
  const int64_t outer = shape.ElementsIn(0, at), inner = shape.ElementsIn(at + 1, rank);
  const int64_t output_row = dims[at] * inner;
  int64_t offset = 0;
  std::vector<BoxCopy> copies;
  for (int i = args.first_value; i < args.end_value; ++i) {
    const int64_t row = c.input(i).dim(at) * inner;
    StridedBox box;
    box.Add(outer, row, output_row);
    box.Add(row, 1, 1);
    box.to_offset = offset;
    offset += row;
    copies.push_back({std::move(box), c.input(i).raw(), output->raw()});
  }
  return mover.Copy(c, output->dtype(), std::move(copies));
}

absl::Status ConcatOffsetShape(ShapeContext& c) {
  for (int i = 1; i < c.num_inputs(); ++i) c.SetOutput(i - 1, c.input(i));
  return absl::OkStatus();
}

template <typename T>
absl::Status ConcatOffset(KernelContext& c) {
  const Tensor& axis_tensor = c.input(0);
  if (axis_tensor.rank() != 0) {
    return InvalidArgument("Concat dim tensor should be a scalar integer, but got shape ",
                           axis_tensor.shape().ToString());
  }
  for (int i = 1; i < c.num_inputs(); ++i) {
    if (c.input(i).rank() != 1) {
      return InvalidArgument("input ", i - 1, " should be a vector, but got shape ",
                             c.input(i).shape().ToString());
    }
  }
  const int64_t rank = c.input(1).num_elements();
  ASSIGN_OR_RETURN(const int64_t given_axis, ScalarInteger(axis_tensor, "concat_dim"));
  const int64_t axis = given_axis < 0 ? given_axis + rank : given_axis;
  if (axis < 0 || axis >= rank)
    return InvalidArgument("Concat dim is out of range: ", given_axis, " vs. ", rank);
  const T* const first = c.input(1).data<T>();
  uint64_t offset = 0;
  for (int i = 1; i < c.num_inputs(); ++i) {
    const Tensor& input = c.input(i);
    if (input.num_elements() != rank) {
      return InvalidArgument("input ", i - 1, " should contain ", rank, " elements, but got ",
                             input.num_elements());
    }
    const T* const sizes = input.data<T>();
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(i - 1, input.shape()));
    for (int64_t k = 0; k < rank; ++k) {
      if (k != axis && sizes[k] != first[k]) {
        return InvalidArgument("All dimensions except ", axis, " must match. Input ", i - 1,
                               " has shape [", input.SummarizeValues(10),
                               "] and doesn't match input 0 with shape [",
                               c.input(1).SummarizeValues(10), "].");
      }
      output->data<T>()[k] = k == axis ? static_cast<T>(offset) : T{0};
    }
    offset += static_cast<uint64_t>(sizes[axis]);
  }
  return absl::OkStatus();
}

std::vector<DType> GpuConcatDTypes() {
  return GpuFloatsAnd(
      {DType::kBool, DType::kUint8, DType::kInt64, DType::kComplex64, DType::kComplex128});
}

DEFINE_OP(Concat) {
  op.Attr("N: int >= 2")
      .Attr("T: type")
      .Input("concat_dim: int32")
      .Input("values: N * T")
      .Output("output: T")
      .Doc("Tensors joined along one axis.")
      .Shape(ConcatShape)
      .Gradient(ConcatGradient)
      .HostMemory({"concat_dim"})
      .CpuDTypes("T", AllDTypes(), MovesOnHost<MoveBy<Concat>>())
      .GpuOnHost("T")
      .GpuTypes("T", GpuConcatDTypes(), MovesOnGpu<MoveBy<Concat>>);
}

DEFINE_OP(ConcatV2) {
  op.Attr("N: int >= 2")
      .Attr("T: type")
      .Attr("Tidx: {int32, int64} = DT_INT32")
      .Input("values: N * T")
      .Input("axis: Tidx")
      .Output("output: T")
      .Doc("Tensors joined along one axis.")
      .Shape(ConcatShape)
      .Gradient(ConcatGradient)
      .HostMemory({"axis"})
      .CpuDTypes("T", AllDTypes(), MovesOnHost<MoveBy<Concat>>())
      .GpuOnHost("T")
      .GpuTypes("T", GpuConcatDTypes(), MovesOnGpu<MoveBy<Concat>>);
}

DEFINE_OP(ConcatOffset) {
  op.Attr("N: int >= 2")
      .Attr2x("shape_type: {int32, int64} = DT_INT32")
      .Input("concat_dim: int32")
      .Input("shape: N * shape_type")
      .Output("offset: N * shape_type")
      .Doc("Where each of the tensors with these shapes starts once they are joined.")
      .Shape(ConcatOffsetShape)
      .NoGradient("offsets do not depend on values")
      .HostMemory({"concat_dim", "shape", "offset"})
      .CpuTypes<Indices>("shape_type", []<typename T>() { return Stateless(ConcatOffset<T>); })
      .GpuOnHost("shape_type", {DType::kInt32, DType::kInt64});
}

}  // namespace
}  // namespace muster
