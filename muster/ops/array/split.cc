// Cutting a tensor into pieces along one axis.
#include <algorithm>

#include "absl/strings/str_join.h"

#include "muster/ops/array/sharing.h"
#include "muster/ops/indexing/gpu_mover.h"
#include "muster/ops/op.h"

namespace muster {
namespace {

// The axis of a shape rule, non-negative; nothing while it is not known.
absl::StatusOr<std::optional<int>> KnownAxis(ShapeContext& c, int input, int rank) {
  ASSIGN_OR_RETURN(const std::optional<int64_t> value, c.ScalarInput(input));
  if (!value) return std::optional<int>();
  if (rank < 0) {
    return *value < 0 || *value > Shape::kMaxRank ? std::nullopt
                                                  : std::optional<int>(static_cast<int>(*value));
  }
  if (*value < -rank || *value >= rank) {
    return InvalidArgument("Dimension size, given by scalar input ", *value, " must be in range [-",
                           rank, ", ", rank, ")");
  }
  return static_cast<int>(*value < 0 ? *value + rank : *value);
}

void SetAllOutputs(ShapeContext& c, const PartialShape& shape) {
  for (int i = 0; i < c.num_outputs(); ++i) c.SetOutput(i, shape);
}

PartialShape UnknownLike(const PartialShape& shape) {
  return shape.known_rank() ? PartialShape::OfRank(shape.rank()) : PartialShape();
}

absl::Status SplitShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(const std::optional<int> axis, KnownAxis(c, 0, c.input(1).rank()));
  if (!axis) {
    SetAllOutputs(c, UnknownLike(c.input(1)));
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(PartialShape shape, c.WithRankAtLeast(c.input(1), *axis + 1));
  if (shape.known_rank() && shape.dim(*axis) >= 0) {
    if (shape.dim(*axis) % c.num_outputs() != 0) {
      return InvalidArgument(
          "Dimension size must be evenly divisible by ", c.num_outputs(), " but is ",
          shape.dim(*axis), "\n\tNumber of ways to split should evenly divide the split dimension");
    }
    shape.Set(*axis, shape.dim(*axis) / c.num_outputs());
  }
  SetAllOutputs(c, shape);
  return absl::OkStatus();
}

absl::StatusOr<Dims> SplitSizes(const Tensor& tensor) {
  if (tensor.dtype() != DType::kInt8) return IntegerValues(tensor);
  const absl::Span<const int8_t> values = tensor.values<int8_t>();
  return Dims(values.begin(), values.end());
}

// Sizes with the one -1 replaced by what is left of `total`, which may be unknown (-1). The largest
// sum of sizes that fits is checked by the caller's words.
absl::StatusOr<int64_t> SumOfSizes(const Dims& sizes, int* wildcard) {
  int64_t sum = 0;
  *wildcard = -1;
  for (int i = 0; i < static_cast<int>(sizes.size()); ++i) {
    if (sizes[i] == -1) {
      if (*wildcard >= 0) {
        return InvalidArgument("There can only be one -1 in the input.");
      }
      *wildcard = i;
    } else if (sizes[i] < 0) {
      return InvalidArgument("Split size at index ", i, " must be >= 0. Got: ", sizes[i]);
    } else if (__builtin_add_overflow(sum, sizes[i], &sum)) {
      return InvalidArgument("Split sizes add up to more than fits into 64 bits");
    }
  }
  return sum;
}

absl::Status SplitVShape(ShapeContext& c) {
  const PartialShape& input = c.input(0);
  if (input.known_rank() && input.rank() == 0) return InvalidArgument("Can't split scalars");
  ASSIGN_OR_RETURN(const std::optional<int> axis, KnownAxis(c, 2, input.rank()));
  if (!axis || !input.known_rank()) {
    SetAllOutputs(c, UnknownLike(input));
    return absl::OkStatus();
  }
  PartialShape shape = input;
  const std::optional<Tensor> sizes_tensor = c.ConstantInput(1);
  if (!sizes_tensor) {
    shape.Set(*axis, c.num_outputs() == 1 ? input.dim(*axis) : -1);
    SetAllOutputs(c, shape);
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(Dims sizes, SplitSizes(*sizes_tensor));
  if (static_cast<int>(sizes.size()) != c.num_outputs()) {
    return InvalidArgument("Length of size_splits should be equal to num_outputs");
  }
  const int64_t total = input.dim(*axis);
  if (std::count(sizes.begin(), sizes.end(), -1) > 1) {
    return InvalidArgument("size_splits can only have one -1");
  }
  int wildcard = -1;
  ASSIGN_OR_RETURN(const int64_t sum, SumOfSizes(sizes, &wildcard));
  if (total >= 0 && wildcard < 0 && sum != total) {
    return InvalidArgument("can't split axis of size ", total, " into pieces of size [",
                           absl::StrJoin(sizes, ","), "]");
  }
  if (total >= 0 && wildcard >= 0 && sum > total) {
    return InvalidArgument("Split size at index ", wildcard, " must be >= 0. Got: ", total - sum);
  }
  if (wildcard >= 0) sizes[wildcard] = total < 0 ? -1 : total - sum;
  for (int i = 0; i < c.num_outputs(); ++i) {
    shape.Set(*axis, sizes[i]);
    c.SetOutput(i, shape);
  }
  return absl::OkStatus();
}

// Output i = the next sizes[i] slices along `axis`.
absl::Status Cut(KernelContext& c, const Mover& mover, const Tensor& input, int axis,
                 const Dims& sizes) {
  const int64_t outer = input.shape().ElementsIn(0, axis),
                inner = input.shape().ElementsIn(axis + 1, input.rank());
  const bool share = axis == 0 && RowsKeepAlignment(input);
  int64_t offset = 0;
  std::vector<BoxCopy> copies;
  for (int i = 0; i < c.num_outputs(); ++i) {
    if (share) {
      c.SetOutput(i, input.Rows(offset, offset + sizes[i]));
      offset += sizes[i];
      continue;
    }
    Shape shape = input.shape();
    shape.Set(axis, sizes[i]);
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(i, shape));
    StridedBox box;
    box.Add(outer, input.dim(axis) * inner, sizes[i] * inner);
    box.Add(sizes[i] * inner, 1, 1);
    box.from_offset = offset * inner;
    offset += sizes[i];
    copies.push_back({std::move(box), input.raw(), output->raw()});
  }
  return mover.Copy(c, input.dtype(), std::move(copies));
}

absl::StatusOr<int> SplitAxis(const Tensor& axis_tensor, int rank) {
  if (axis_tensor.num_elements() != 1)
    return InvalidArgument("split_dim must have exactly one element.");
  ASSIGN_OR_RETURN(const Dims axes, IntegerValues(axis_tensor));
  const int64_t axis = axes[0];
  if (axis < -rank || axis >= rank) {
    return InvalidArgument("-input rank(-", rank, ") <= split_dim < input rank (", rank,
                           "), but got ", axis);
  }
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

absl::Status Split(KernelContext& c, const Mover& mover) {
  if (c.input(0).rank() != 0)
    return InvalidArgument("split_dim must be a scalar but has rank ", c.input(0).rank());
  const Tensor input = c.input(1);
  ASSIGN_OR_RETURN(const int axis, SplitAxis(c.input(0), input.rank()));
  const int pieces = c.num_outputs();
  if (input.dim(axis) % pieces != 0) {
    return InvalidArgument(
        "Number of ways to split should evenly divide the split dimension, but got split_dim ",
        axis, " (size = ", input.dim(axis), ") and num_split ", pieces);
  }
  return Cut(c, mover, input, axis, Dims(pieces, input.dim(axis) / pieces));
}

absl::Status SplitV(KernelContext& c, const Mover& mover) {
  const Tensor input = c.input(0);
  const Tensor& sizes_tensor = c.input(1);
  ASSIGN_OR_RETURN(const int axis, SplitAxis(c.input(2), input.rank()));
  if (sizes_tensor.rank() != 1 || sizes_tensor.num_elements() != c.num_outputs()) {
    return InvalidArgument(
        "size of the split_tensor must be 1-D and have the same elements as outputs got ",
        sizes_tensor.rank(), " -D and ", sizes_tensor.num_elements(), " elements");
  }
  ASSIGN_OR_RETURN(Dims sizes, SplitSizes(sizes_tensor));
  int wildcard = -1;
  ASSIGN_OR_RETURN(const int64_t sum, SumOfSizes(sizes, &wildcard));
  if (wildcard >= 0 ? sum > input.dim(axis) : sum != input.dim(axis)) {
    return InvalidArgument(
        "Determined shape must either match input shape along split_dim exactly if fully "
        "specified, or be less than "
        "the size of the input along split_dim if not fully specified.  Got: ",
        sum);
  }
  if (wildcard >= 0) sizes[wildcard] = input.dim(axis) - sum;
  return Cut(c, mover, input, axis, sizes);
}

Output JoinGradients(GradientContext& c, Output axis) {
  std::vector<Output> parts;
  for (int i = 0; i < c.num_outputs(); ++i) parts.push_back(c.dy(i));
  // One piece is the whole tensor; ConcatV2 wants two.
  if (parts.size() == 1) return c.Op("Identity", {parts[0]}, {}, "concat/concat");
  return c.Op("ConcatV2", {parts, axis}, {}, "concat");
}

absl::Status SplitGradient(GradientContext& c) {
  c.SetDx(1, JoinGradients(c, c.input(0)));
  return absl::OkStatus();
}

absl::Status SplitVGradient(GradientContext& c) {
  c.SetDx(0, JoinGradients(c, c.input(2)));
  return absl::OkStatus();
}

std::vector<DType> GpuSplitDTypes() {
  return GpuFloatsAnd({DType::kComplex64, DType::kComplex128});
}

DEFINE_OP(Split) {
  op.Attr("num_split: int >= 1")
      .Attr("T: type")
      .Input("split_dim: int32")
      .Input("value: T")
      .Output("output: num_split * T")
      .Doc("A tensor cut into equal pieces along one axis.")
      .Shape(SplitShape)
      .Gradient(SplitGradient)
      .HostMemory({"split_dim"})
      .CpuDTypes("T", AllDTypes(), MovesOnHost<MoveBy<Split>>())
      .GpuTypes("T", GpuSplitDTypes(), MovesOnGpu<MoveBy<Split>>);
}

DEFINE_OP(SplitV) {
  op.Attr("num_split: int >= 1")
      .Attr("T: type")
      .Attr("Tlen: {int8, int32, int64} = DT_INT64")
      .Input("value: T")
      .Input("size_splits: Tlen")
      .Input("split_dim: int32")
      .Output("output: num_split * T")
      .Doc("A tensor cut into pieces of the given sizes along one axis.")
      .Shape(SplitVShape)
      .Gradient(SplitVGradient)
      .HostMemory({"size_splits", "split_dim"})
      .CpuDTypes("T", AllDTypes(), MovesOnHost<MoveBy<SplitV>>())
      .GpuOnHost("T")
      .GpuTypes("T", GpuSplitDTypes(), MovesOnGpu<MoveBy<SplitV>>);
}

}  // namespace
}  // namespace muster
