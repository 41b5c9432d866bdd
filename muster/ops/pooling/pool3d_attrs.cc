#include "muster/ops/pooling/pool3d_attrs.h"

#include <algorithm>

#include "muster/ops/nn/window.h"

namespace muster {
namespace {

// What TensorFlow calls it.
absl::string_view Pool3DKernelName(absl::string_view op) {
  if (op == "MaxPool3DGrad") return "MaxPooling3dGradOp";
  if (op == "MaxPool3DGradGrad") return "MaxPooling3dGradGradOp";
  return op == "AvgPool3DGrad" ? "AvgPooling3dGradOp" : "Pooling3DOp";
}

// MaxPool3DGrad finds only in what it is given that windows are not positive.
absl::Status CheckPool3DWindow(absl::string_view op, absl::Span<const int64_t> window) {
  for (const int64_t size : window) {
    if (size > 0) continue;
    if (op == "MaxPool3D" || op == "AvgPool3D")
      return InvalidArgument("Sliding window ksize field must have non-negative dimensions");
    if (op == "AvgPool3DGrad") return InvalidArgument("ksize must be positive, got: ", size);
  }
  return absl::OkStatus();
}

absl::Status CheckRank5(const Shape& shape, absl::string_view what) {
  if (shape.rank() == 5) return absl::OkStatus();
  return InvalidArgument(what, " must be 5-dimensional");
}

}  // namespace

absl::StatusOr<Pool3DAttrs> Pool3DAttrs::Make(const Node& node, bool any_layout) {
  Pool3DAttrs result;
  VolumeAttrs& attrs = result.attrs_;
  ASSIGN_OR_RETURN(attrs, ReadVolumeAttrs(node));
  if (attrs.window.size() != 5)
    return InvalidArgument("Sliding window ksize field must specify 5 dimensions");
  if (attrs.strides.size() != 5)
    return InvalidArgument("Sliding window stride field must specify 5 dimensions");
  if (any_layout && attrs.data_format == "NCDHW") {
    for (std::vector<int64_t>* const sizes : {&attrs.window, &attrs.strides})
      std::rotate(sizes->begin() + 1, sizes->begin() + 2, sizes->end());
    attrs.data_format = "NDHWC";
    result.channels_first_ = true;
  }
  const absl::string_view op = node.def().name;
  const bool is_second = op == "MaxPool3DGradGrad";
  const int channels = is_second ? attrs.channels() : 4;
  const bool over_depth = attrs.window[channels] != 1 || attrs.strides[channels] != 1;
  // It looks at the layout last.
  if (is_second && over_depth && attrs.window[0] == 1 && attrs.strides[0] == 1) {
    return Unimplemented("MaxPooling3dGradGrad is not yet supported on the depth dimension.");
  }
  if (attrs.data_format != "NDHWC") {
    return InvalidArgument("Default ", Pool3DKernelName(op),
                           " only supports NDHWC on device type CPU");
  }
  RETURN_IF_ERROR(CheckPool3DWindow(op, attrs.window));
  if (attrs.window[0] != 1 || attrs.strides[0] != 1)
    return Unimplemented("Pooling is not yet supported on the batch dimension.");
  if (over_depth) return Unimplemented("Pooling is not yet supported on the depth dimension.");
  return result;
}

absl::StatusOr<VolumeWindows> Pool3DAttrs::ForForward(const Shape& input) const {
  RETURN_IF_ERROR(CheckRank5(input, "tensor_in"));
  return Windows(ToLast(input));
}

absl::StatusOr<VolumeWindows> Pool3DAttrs::ForMaxGrad(const KernelContext& c,
                                                      bool is_second) const {
  const Shape& input = c.input(0).shape();
  RETURN_IF_ERROR(CheckRank5(input, "tensor_in"));
  RETURN_IF_ERROR(CheckRank5(c.input(1).shape(), "tensor_out"));
  RETURN_IF_ERROR(CheckRank5(c.input(2).shape(), is_second ? "out_grad_backprop" : "out_backprop"));
  ASSIGN_OR_RETURN(const Shape last, Pooled(ToLast(input)));
  const Shape pooled = FromLast(last);
  RETURN_IF_ERROR(CheckShapeIs(c.input(1).shape(), pooled, "orig_output"));
  RETURN_IF_ERROR(CheckShapeIs(c.input(2).shape(), is_second ? input : pooled, "grad"));
  if (is_second && input.num_elements() == 0)
    return InvalidArgument("received empty tensor tensor_in");
  return Windows(ToLast(input));
}

absl::StatusOr<VolumeWindows> Pool3DAttrs::ForAvgGrad(const KernelContext& c) const {
  const Tensor& sizes = c.input(0);
  if (sizes.rank() != 1 || sizes.num_elements() != 5)
    return InvalidArgument("tensor_in must be 1-dimensional and 5 elements");
  RETURN_IF_ERROR(CheckRank5(c.input(1).shape(), "out_backprop"));
  ASSIGN_OR_RETURN(const Dims dims, IntegerValues(sizes));
  for (const int64_t size : dims)
    if (size < 0) return InvalidArgument("Expected a non-negative size, got ", size);
  ASSIGN_OR_RETURN(const Shape own, Shape::Make(dims));
  const Shape shape = ToLast(own), gradient = ToLast(c.input(1).shape());
  for (const auto& [axis, which] : {std::pair(0, "first"), std::pair(4, "last")}) {
    if (shape.dim(axis) == gradient.dim(axis)) continue;
    return InvalidArgument("Expected ", which,
                           " dimension of tensor_in_shape and out_backprop to match, got ",
                           shape.dim(axis), " and ", gradient.dim(axis));
  }
  ASSIGN_OR_RETURN(const Shape pooled, Pooled(shape));
  for (const int axis : {1, 2, 3}) {
    if (gradient.dim(axis) - 1 > shape.dim(axis) / attrs_.strides[axis])
      return InvalidArgument("index * stride must be less than or equal to input size");
  }
  RETURN_IF_ERROR(CheckShapeIs(gradient, pooled, "grad"));
  return Windows(shape);
}

Shape Pool3DAttrs::InputShape(const VolumeWindows& w) const {
  return FromLast(Shape({w.batch, w.axes[0].size, w.axes[1].size, w.axes[2].size, w.channels}));
}
Shape Pool3DAttrs::OutputShape(const VolumeWindows& w) const {
  return FromLast(w.output_shape(w.channels));
}

absl::StatusOr<VolumeWindows> Pool3DAttrs::Windows(const Shape& input) const {
  return MakeVolumeWindows(attrs_, input, absl::MakeConstSpan(attrs_.window).subspan(1, 3));
}

// The shape of what is pooled, for any window.
absl::StatusOr<Shape> Pool3DAttrs::Pooled(const Shape& input) const {
  Dims dims(input.dims());
  for (const int axis : {3, 2, 1}) {
    const int64_t size = input.dim(axis), stride = attrs_.strides[axis];
    // A negative window reaches beyond the volume on both sides, as in TensorFlow.
    const int64_t beyond = std::max<int64_t>(-attrs_.window[axis], 0);
    ASSIGN_OR_RETURN(
        const WindowSize windows,
        WindowedOutputSize(attrs_.padding == "SAME" ? size : size + beyond,
                           std::max<int64_t>(attrs_.window[axis], 0), 1, stride, attrs_.padding));
    dims[axis] = windows.output;
  }
  return Shape::Make(dims);
}

Shape Pool3DAttrs::ToLast(const Shape& shape) const {
  return channels_first_ ? ChannelsToLast(shape) : shape;
}
Shape Pool3DAttrs::FromLast(const Shape& shape) const {
  return channels_first_ ? ChannelsToSecond(shape) : shape;
}

}  // namespace muster
