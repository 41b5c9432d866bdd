// Stacking tensors along a new axis and taking them apart again.
#include "muster/ops/array/sharing.h"
#include "muster/ops/indexing/gpu_mover.h"
#include "muster/ops/op.h"

namespace muster {
namespace {

absl::StatusOr<int> NewAxis(int64_t axis, int rank) {
  if (axis < -rank || axis >= rank) {
    return InvalidArgument("Invalid axis: ", axis, "; must be in [", -rank, ",", rank, ")");
  }
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

absl::Status PackShape(ShapeContext& c) {
  PartialShape shape = c.input(c.num_inputs() - 1);
  for (int i = c.num_inputs() - 2; i >= 0; --i) {
    absl::StatusOr<PartialShape> merged = c.Merge(c.input(i), shape);
    if (!merged.ok()) {
      return Suffixed(merged.status(),
                      absl::StrCat("\n\tFrom merging shape ", i, " with other shapes."));
    }
    shape = *std::move(merged);
  }
  if (shape.known_rank()) {
    ASSIGN_OR_RETURN(const int64_t axis_attr, c.Attr<int32_t>("axis"));
    ASSIGN_OR_RETURN(const int axis, NewAxis(axis_attr, shape.rank() + 1));
    Dims dims = shape.dims();
    dims.insert(dims.begin() + axis, c.num_inputs());
    shape = PartialShape(std::move(dims));
  }
  c.SetOutput(0, std::move(shape));
  return absl::OkStatus();
}

class PackMove {
 public:
  absl::Status Init(KernelSetup& setup) {
    ASSIGN_OR_RETURN(axis_, setup.Attr<int32_t>("axis"));
    return absl::OkStatus();
  }
  absl::Status Run(KernelContext& c, const Mover& mover) const {
    const Shape& first = c.input(0).shape();
    const int rank = first.rank() + 1;
    if (axis_ < -rank || axis_ >= rank) {
      return InvalidArgument("axis = ", axis_, " not in [", -rank, ", ", rank, ")");
    }
    for (int i = 1; i < c.num_inputs(); ++i) {
      if (c.input(i).shape() != first) {
        return InvalidArgument(
            "Shapes of all inputs must match: values[0].shape = ", first.ToString(), " != values[",
            i, "].shape = ", c.input(i).shape().ToString());
      }
    }
    const int axis = static_cast<int>(axis_ < 0 ? axis_ + rank : axis_);
    Dims dims = first.dims();
    dims.insert(dims.begin() + axis, c.num_inputs());
    ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
    if (c.num_inputs() == 1) {
      c.SetOutput(0, c.TakeInput(0).Reshaped(shape));
      return absl::OkStatus();
    }
    const int64_t outer = first.ElementsIn(0, axis), inner = first.ElementsIn(axis, first.rank());
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, shape));
    std::vector<BoxCopy> copies;
    for (int i = 0; i < c.num_inputs(); ++i) {
      StridedBox box;
      box.Add(outer, inner, inner * c.num_inputs());
      box.Add(inner, 1, 1);
      box.to_offset = i * inner;
      copies.push_back({std::move(box), c.input(i).raw(), output->raw()});
    }
    return mover.Copy(c, output->dtype(), std::move(copies));
  }

 private:
  int64_t axis_ = 0;
};

absl::Status PackGradient(GradientContext& c) {
  const int64_t axis = c.Attr<int64_t>("axis");
  const Output dy = c.dy();
  Node* const parts =
      c.scope().Add("Unpack", {dy}, {{"num", c.num_inputs()}, {"axis", axis}}, "unstack");
  for (int i = 0; i < c.num_inputs(); ++i) c.SetDx(i, Output(parts, i));
  return absl::OkStatus();
}

absl::Status UnpackShape(ShapeContext& c) {
  PartialShape shape = c.input(0);
  if (shape.known_rank()) {
    ASSIGN_OR_RETURN(const int64_t axis_attr, c.Attr<int32_t>("axis"));
    ASSIGN_OR_RETURN(const int axis, NewAxis(axis_attr, shape.rank()));
    if (shape.dim(axis) >= 0 && shape.dim(axis) != c.num_outputs()) {
      return InvalidArgument("Dimension must be ", c.num_outputs(), " but is ", shape.dim(axis));
    }
    Dims dims = shape.dims();
    dims.erase(dims.begin() + axis);
    shape = PartialShape(std::move(dims));
  }
  for (int i = 0; i < c.num_outputs(); ++i) c.SetOutput(i, shape);
  return absl::OkStatus();
}

class UnpackMove {
 public:
  absl::Status Init(KernelSetup& setup) {
    ASSIGN_OR_RETURN(axis_, setup.Attr<int32_t>("axis"));
    return absl::OkStatus();
  }
  absl::Status Run(KernelContext& c, const Mover& mover) const {
    const Tensor input = c.input(0);
    const int rank = input.rank();
    if (axis_ < -rank || axis_ >= rank) {
      return InvalidArgument("axis = ", axis_, " not in [", -rank, ", ", rank, ")");
    }
    const int axis = static_cast<int>(axis_ < 0 ? axis_ + rank : axis_);
    if (input.dim(axis) != c.num_outputs()) {
      return InvalidArgument("Input shape axis ", axis, " must equal ", c.num_outputs(),
                             ", got shape ", input.shape().ToString());
    }
    Dims dims = input.shape().dims();
    dims.erase(dims.begin() + axis);
    const Shape shape{absl::Span<const int64_t>(dims)};
    const int64_t outer = input.shape().ElementsIn(0, axis),
                  inner = input.shape().ElementsIn(axis + 1, rank);
    const bool share = axis == 0 && RowsKeepAlignment(input);
    std::vector<BoxCopy> copies;
    for (int i = 0; i < c.num_outputs(); ++i) {
      if (share) {
        c.SetOutput(i, input.Rows(i, i + 1).Reshaped(shape));
        continue;
      }
      ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(i, shape));
      StridedBox box;
      box.Add(outer, inner * c.num_outputs(), inner);
      box.Add(inner, 1, 1);
      box.from_offset = i * inner;
      copies.push_back({std::move(box), input.raw(), output->raw()});
    }
    return mover.Copy(c, input.dtype(), std::move(copies));
  }

 private:
  int64_t axis_ = 0;
};

absl::Status UnpackGradient(GradientContext& c) {
  const int64_t axis = c.Attr<int64_t>("axis");
  std::vector<Output> parts;
  for (int i = 0; i < c.num_outputs(); ++i) parts.push_back(c.dy(i));
  c.SetDx(0, c.Op("Pack", {parts}, {{"axis", axis}}, "stack"));
  return absl::OkStatus();
}

DEFINE_OP(Pack) {
  op.Attr("N: int >= 1")
      .Attr("T: type")
      .Attr("axis: int = 0")
      .Input("values: N * T")
      .Output("output: T")
      .Doc("Tensors of equal shape stacked along a new axis.")
      .Shape(PackShape)
      .Gradient(PackGradient)
      .CpuDTypes("T", AllDTypes(), MovesOnHost<PackMove>())
      .GpuOnHost("T")
      .GpuTypes("T", GpuFloatsAnd({DType::kBool, DType::kInt16, DType::kInt64}),
                MovesOnGpu<PackMove>);
}

DEFINE_OP(Unpack) {
  op.Attr("num: int >= 0")
      .Attr("T: type")
      .Attr("axis: int = 0")
      .Input("value: T")
      .Output("output: num * T")
      .Doc("The slices of a tensor along one axis, without that axis.")
      .Shape(UnpackShape)
      .Gradient(UnpackGradient)
      .CpuDTypes("T", AllDTypes(), MovesOnHost<UnpackMove>())
      .GpuOnHost("T", {DType::kInt32, DType::kInt64})
      .GpuTypes("T", GpuFloatsAnd({DType::kBool, DType::kUint8}), MovesOnGpu<UnpackMove>);
}

}  // namespace
}  // namespace muster
