// Python's indexing, its gradient, and assigning to what it selects.
#include <algorithm>

#include "muster/graph/build/emit.h"
#include "muster/ops/array/sharing.h"
#include "muster/ops/indexing/gpu_mover.h"
#include "muster/ops/indexing/strided_slice_spec.h"
#include "muster/ops/op.h"
#include "muster/ops/state/access.h"

namespace muster {
namespace {

// --- Shape rules -------------------------------------------------------------------------------

absl::StatusOr<std::optional<Dims>> KnownIndices(ShapeContext& c, int input) {
  const std::optional<Tensor> value = c.ConstantInput(input);
  if (!value) return std::optional<Dims>();
  ASSIGN_OR_RETURN(Dims indices, SliceIndices(*value));
  return std::optional<Dims>(std::move(indices));
}

absl::Status StridedSliceShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(PartialShape vector, c.WithRank(c.input(1), 1));
  for (const int i : {2, 3}) {
    ASSIGN_OR_RETURN(const PartialShape other, c.WithRank(c.input(i), 1));
    ASSIGN_OR_RETURN(vector, c.Merge(vector, other));
  }
  ASSIGN_OR_RETURN(const StridedSliceMasks masks, StridedSliceMasks::FromAttrs(c.node()));
  ASSIGN_OR_RETURN(const std::optional<Dims> strides, KnownIndices(c, 3));
  if (!c.input(0).known_rank() || !strides) {
    c.SetOutput(0, PartialShape());
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const std::optional<Dims> begin, KnownIndices(c, 1));
  ASSIGN_OR_RETURN(const std::optional<Dims> end, KnownIndices(c, 2));
  ASSIGN_OR_RETURN(const StridedSliceSpec spec,
                   ResolveStridedSlice(c.input(0), begin, end, *strides, masks));
  c.SetOutput(0, spec.result);
  return absl::OkStatus();
}

absl::Status StridedSliceGradShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(PartialShape shape, c.InputAsShape(0));
  c.SetOutput(0, std::move(shape));
  return absl::OkStatus();
}

// --- Kernels -----------------------------------------------------------------------------------

// Between the whole tensor (strides of `whole`) and the dense box; the caller says which is the
// source.
struct BoxOfSlice {
  Dims sizes;
  Dims whole_strides;
  Dims box_strides;
  int64_t whole_offset = 0;
};

BoxOfSlice MakeBox(const Shape& whole, const StridedSliceSpec& spec) {
  BoxOfSlice box;
  box.sizes = spec.box.dims();
  box.box_strides = RowMajorStrides(box.sizes);
  box.whole_strides = RowMajorStrides(whole.dims());
  bool empty = false;
  for (int64_t size : box.sizes) empty = empty || size == 0;
  for (int i = 0; i < whole.rank(); ++i) {
    if (!empty) box.whole_offset += spec.begin[i] * box.whole_strides[i];
    // The stride of a single element is never taken, and may be too large to multiply.
    box.whole_strides[i] = box.sizes[i] > 1 ? box.whole_strides[i] * spec.strides[i] : 0;
  }
  return box;
}

StridedBox ReadingBox(BoxOfSlice box) {
  return {std::move(box.sizes), std::move(box.whole_strides), std::move(box.box_strides),
          box.whole_offset, 0};
}
StridedBox WritingBox(BoxOfSlice box) {
  return {std::move(box.sizes), std::move(box.box_strides), std::move(box.whole_strides), 0,
          box.whole_offset};
}

class MaskedMove {
 public:
  absl::Status Init(KernelSetup& setup) {
    ASSIGN_OR_RETURN(masks_, StridedSliceMasks::FromAttrs(setup.node()));
    return absl::OkStatus();
  }

 protected:
  StridedSliceMasks masks_;
};

class StridedSliceMove : public MaskedMove {
 public:
  absl::Status Run(KernelContext& c, const Mover& mover) const {
    const Tensor input = c.input(0);
    ASSIGN_OR_RETURN(
        const StridedSliceSpec spec,
        ResolveStridedSlice(input.shape(), c.input(1), c.input(2), c.input(3), masks_));
    ASSIGN_OR_RETURN(const Shape shape, Shape::Make(spec.result.dims()));
    if (spec.is_identity) {
      c.SetOutput(0, input.Reshaped(shape));
      return absl::OkStatus();
    }
    if (spec.is_row_range && RowsKeepAlignment(input)) {
      const int64_t end = spec.begin[0] + spec.box.dim(0);
      c.SetOutput(0, input.Rows(spec.begin[0], end).Reshaped(shape));
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, shape));
    return mover.Copy(c, ReadingBox(MakeBox(input.shape(), spec)), input, *output);
  }
};

class StridedSliceGradMove : public MaskedMove {
 public:
  absl::Status Run(KernelContext& c, const Mover& mover) const {
    const Tensor& shape_tensor = c.input(0);
    const Tensor& dy = c.input(4);
    if (shape_tensor.rank() != 1) {
      return InvalidArgument("shape must be 1-D, got shape.shape = ",
                             shape_tensor.shape().ToString());
    }
    ASSIGN_OR_RETURN(const Dims dims, IntegerValues(shape_tensor));
    ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
    ASSIGN_OR_RETURN(const StridedSliceSpec spec,
                     ResolveStridedSlice(shape, c.input(1), c.input(2), c.input(3), masks_));
    ASSIGN_OR_RETURN(const Shape result, Shape::Make(spec.result.dims()));
    if (dy.shape() != result) {
      return InvalidArgument("shape of dy was ", dy.shape().ToString(), " instead of ",
                             result.ToString());
    }
    if (spec.is_identity) {
      c.SetOutput(0, dy.Reshaped(shape));
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, shape));
    std::vector<EmbeddedAxis> axes;
    for (int i = 0; i < shape.rank(); ++i)
      axes.push_back({shape.dim(i), spec.begin[i], spec.strides[i], spec.box.dim(i)});
    return mover.Embed(c, axes, nullptr, dy, *output);
  }
};

// Writes `value` into the slice of `target`; smaller values are broadcast.
absl::Status AssignSlice(KernelContext& c, const Mover& mover, const StridedSliceMasks& masks,
                         const Tensor& value, Tensor& target) {
  if (value.dtype() != target.dtype()) {
    return InvalidArgument("Cannot assign ", DTypeName(value.dtype()), " to a slice of ",
                           DTypeName(target.dtype()));
  }
  ASSIGN_OR_RETURN(const StridedSliceSpec spec,
                   ResolveStridedSlice(target.shape(), c.input(1), c.input(2), c.input(3), masks));
  ASSIGN_OR_RETURN(const Shape result, Shape::Make(spec.result.dims()));
  BoxOfSlice box = MakeBox(target.shape(), spec);
  if (value.shape() != result) {
    const int missing = result.rank() - value.rank();
    const Dims value_strides = RowMajorStrides(value.shape().dims());
    std::fill(box.box_strides.begin(), box.box_strides.end(), 0);
    bool fits = missing >= 0;
    for (int i = 0; i < value.rank() && fits; ++i) {
      const int dim = spec.result_dims[i + missing];
      fits = value.dim(i) == 1 || value.dim(i) == result.dim(i + missing);
      if (dim >= 0 && value.dim(i) != 1) box.box_strides[dim] = value_strides[i];
    }
    if (!fits) {
      return InvalidArgument("Cannot broadcast input shape ", value.shape().ToString(),
                             " into final shape ", result.ToString());
    }
  }
  return mover.Copy(c, WritingBox(std::move(box)), value, target);
}

class AssignMove : public MaskedMove {
 public:
  absl::Status Run(KernelContext& c, const Mover& mover) const {
    const Tensor value = c.input(4);
    RETURN_IF_ERROR(c.input_variable(0).Update(
        [&](Tensor& target) { return AssignSlice(c, mover, masks_, value, target); }));
    c.SetOutputReference(0, c.input_reference(0));
    return absl::OkStatus();
  }
};

// A new tensor, in which the slice has another value.
class UpdateMove : public MaskedMove {
 public:
  absl::Status Run(KernelContext& c, const Mover& mover) const {
    const Tensor input = c.input(0);
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, input.shape()));
    RETURN_IF_ERROR(mover.CopyAll(input, *output));
    return AssignSlice(c, mover, masks_, c.input(4), *output);
  }
};

class ResourceAssignMove : public MaskedMove {
 public:
  absl::Status Run(KernelContext& c, const Mover& mover) const {
    const Tensor& handles = c.input(0);
    if (handles.num_elements() != 1) {
      return InvalidArgument("Expected one resource, but got shape ", handles.shape().ToString());
    }
    const ResourceHandle& handle = handles.scalar<ResourceHandle>();
    ASSIGN_OR_RETURN(const RefPtr<Variable> variable, HandleVariable(c, handle));
    const Tensor value = c.input(4);
    return variable->Update(
        [&](Tensor& target) { return AssignSlice(c, mover, masks_, value, target); });
  }
};

// --- Gradients ---------------------------------------------------------------------------------

AttrMap MasksOf(const GradientContext& c) {
  AttrMap attrs;
  for (const char* mask :
       {"begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask"}) {
    attrs.emplace(mask, c.Attr<int64_t>(mask));
  }
  return attrs;
}

absl::Status StridedSliceGradient(GradientContext& c) {
  const Output dy = c.dy();
  const Output shape = c.ShapeOf(c.input(0), "Shape", c.input(1).base_dtype());
  c.SetDx(0, c.Op("StridedSliceGrad", {shape, c.input(1), c.input(2), c.input(3), dy}, MasksOf(c)));
  return absl::OkStatus();
}

absl::Status StridedSliceGradGradient(GradientContext& c) {
  c.SetDx(4, c.Op("StridedSlice", {c.dy(), c.input(1), c.input(2), c.input(3)}, MasksOf(c)));
  return absl::OkStatus();
}

absl::Status UpdateGradient(GradientContext& c) {
  const Output dy = c.dy();
  const Output value = c.input(4);
  const std::vector<NodeInput> zeroed = {dy, c.input(1), c.input(2), c.input(3),
                                         EmitZerosLike(c.scope(), value)};
  c.SetDx(0, c.Op("TensorStridedSliceUpdate", zeroed, MasksOf(c)));
  const Output slice = c.Op("StridedSlice", {dy, c.input(1), c.input(2), c.input(3)}, MasksOf(c));
  // A value that was broadcast gets the sum.
  const Output value_shape = c.ShapeOf(value);
  Node* const axes =
      c.scope().Add("BroadcastGradientArgs", {value_shape, c.ShapeOf(slice, "Shape_1")});
  if (axes == nullptr) return c.scope().status();
  const Output sum = c.Op("Sum", {slice, Output(axes, 0)});
  c.SetDx(4, c.Op("Reshape", {sum, value_shape}));
  return c.scope().status();
}

// --- Definitions -------------------------------------------------------------------------------

std::vector<DType> GpuSliceDTypes() {
  return GpuFloatsAnd(
      {DType::kBool, DType::kInt8, DType::kInt64, DType::kComplex64, DType::kComplex128});
}

OpBuilder& MaskAttrs(OpBuilder& op) {
  return op.Attr("begin_mask: int = 0")
      .Attr("end_mask: int = 0")
      .Attr("ellipsis_mask: int = 0")
      .Attr("new_axis_mask: int = 0")
      .Attr("shrink_axis_mask: int = 0");
}

DEFINE_OP(StridedSlice) {
  MaskAttrs(op.Attr("T: type").Attr("Index: {int16, int32, int64}"))
      .Input("input: T")
      .Input("begin: Index")
      .Input("end: Index")
      .Input("strides: Index")
      .Output("output: T")
      .Doc(
          "What Python's indexing selects: ranges with steps, single indices, new axes and an "
          "ellipsis.")
      .Shape(StridedSliceShape)
      .Gradient(StridedSliceGradient)
      .HostMemory({"begin", "end", "strides"})
      .CpuDTypes("T", AllDTypes(), MovesOnHost<StridedSliceMove>())
      .GpuOnHost("T")
      .GpuTypes("T", GpuSliceDTypes(), MovesOnGpu<StridedSliceMove>);
}

DEFINE_OP(StridedSliceGrad) {
  MaskAttrs(op.Attr("T: type").Attr("Index: {int32, int64}"))
      .Input("shape: Index")
      .Input("begin: Index")
      .Input("end: Index")
      .Input("strides: Index")
      .Input("dy: T")
      .Output("output: T")
      .Doc("Zeros of the given shape with `dy` where StridedSlice would have read.")
      .Shape(StridedSliceGradShape)
      .Gradient(StridedSliceGradGradient)
      .HostMemory({"shape", "begin", "end", "strides"})
      .CpuDTypes("T", AllDTypes(), MovesOnHost<StridedSliceGradMove>())
      .GpuOnHost("T")
      .GpuTypes("T", GpuSliceDTypes(), MovesOnGpu<StridedSliceGradMove, GpuEmbedder>);
}

DEFINE_OP(StridedSliceAssign) {
  MaskAttrs(op.Attr("T: type").Attr("Index: {int32, int64}"))
      .Input("ref: Ref(T)")
      .Input("begin: Index")
      .Input("end: Index")
      .Input("strides: Index")
      .Input("value: T")
      .Output("output_ref: Ref(T)")
      .Doc("Assigns to a slice of a variable.")
      .Shape(UnchangedShape)
      .HostMemory({"begin", "end", "strides"})
      .CpuDTypes("T", AllDTypes(), MovesOnHost<AssignMove>())
      .GpuOnHost("T")
      .GpuTypes("T", GpuSliceDTypes(), MovesOnGpu<AssignMove>);
}

DEFINE_OP(TensorStridedSliceUpdate) {
  MaskAttrs(op.Attr("T: type").Attr("Index: {int32, int64}"))
      .Input("input: T")
      .Input("begin: Index")
      .Input("end: Index")
      .Input("strides: Index")
      .Input("value: T")
      .Output("output: T")
      .Doc("The input with another value in the slice.")
      .Shape(UnchangedShape)
      .Gradient(UpdateGradient)
      .HostMemory({"begin", "end", "strides"})
      .CpuDTypes("T", AllDTypes(), MovesOnHost<UpdateMove>())
      .GpuOnHost("T")
      .GpuTypes("T", GpuSliceDTypes(), MovesOnGpu<UpdateMove>);
}

DEFINE_OP(ResourceStridedSliceAssign) {
  MaskAttrs(op.Attr("T: type").Attr("Index: {int32, int64}"))
      .Input("ref: resource")
      .Input("begin: Index")
      .Input("end: Index")
      .Input("strides: Index")
      .Input("value: T")
      .Stateful()
      .Doc("Assigns to a slice of a resource variable.")
      .Shape(NoOutputs)
      .HostMemory({"begin", "end", "strides"})
      .CpuDTypes("T", AllDTypes(), MovesOnHost<ResourceAssignMove>())
      .GpuOnHost("T")
      .GpuTypes("T", GpuSliceDTypes(), MovesOnGpu<ResourceAssignMove>);
}

}  // namespace
}  // namespace muster
