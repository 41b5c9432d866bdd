#include "muster/ops/nn/volume.h"

#include "muster/ops/nn/window.h"

namespace muster {
namespace {

constexpr int64_t kLargestSize = int64_t{1} << 31;

}  // namespace

absl::StatusOr<VolumeAttrs> ReadVolumeAttrs(const Node& node) {
  VolumeAttrs attrs;
  const OpDef& def = node.def();
  ASSIGN_OR_RETURN(attrs.strides, ReadSizes(node, "strides"));
  if (def.FindAttr("ksize") != nullptr) {
    ASSIGN_OR_RETURN(attrs.window, ReadSizes(node, "ksize"));
  }
  if (def.FindAttr("dilations") != nullptr) {
    ASSIGN_OR_RETURN(attrs.dilations, ReadSizes(node, "dilations"));
  }
  ASSIGN_OR_RETURN(attrs.padding, node.Attr<std::string>("padding"));
  attrs.data_format = "NDHWC";
  if (def.FindAttr("data_format") != nullptr) {
    ASSIGN_OR_RETURN(attrs.data_format, node.Attr<std::string>("data_format"));
  }
  return attrs;
}

absl::StatusOr<VolumeWindows> MakeVolumeWindows(const VolumeAttrs& attrs, const Shape& input,
                                                absl::Span<const int64_t> window) {
  if (input.rank() != 5)
    return InvalidArgument("input must be 5-dimensional, not ", input.ToString());
  for (const int64_t size : input.dims()) {
    if (size >= kLargestSize) return InvalidArgument("A volume is too large: ", input.ToString());
  }
  VolumeWindows w;
  w.batch = input.dim(0);
  w.channels = input.dim(4);
  for (int i = 0; i < 3; ++i) {
    VolumeAxis& axis = w.axes[i];
    axis.size = input.dim(i + 1);
    axis.window = window[i];
    axis.stride = attrs.strides[attrs.space() + i];
    if (axis.window <= 0 || axis.window >= kLargestSize) {
      return InvalidArgument("Sliding window ksize must be positive, but got ", axis.window);
    }
    if (axis.stride <= 0 || axis.stride >= kLargestSize) {
      return InvalidArgument("Sliding window strides must be positive, but got ", axis.stride);
    }
    ASSIGN_OR_RETURN(const WindowSize size,
                     WindowedOutputSize(axis.size, axis.window, 1, axis.stride, attrs.padding));
    axis.out = size.output;
    axis.pad = size.padding_before;
  }
  RETURN_IF_ERROR(
      Shape::Make({w.batch, w.axes[0].out, w.axes[1].out, w.axes[2].out, w.channels}).status());
  return w;
}

absl::StatusOr<PartialShape> InferVolume(ShapeContext& c, const PartialShape& input,
                                         const VolumeAttrs& attrs, absl::Span<const int64_t> window,
                                         int64_t channels) {
  ASSIGN_OR_RETURN(const PartialShape shape, c.WithRank(input, 5));
  PartialShape output = PartialShape::OfRank(5);
  output.Set(0, shape.dim(0));
  output.Set(attrs.channels(), channels);
  for (int i = 0; i < 3; ++i) {
    const int at = attrs.space() + i;
    const int64_t dilation = attrs.dilations.empty() ? 1 : attrs.dilations[at];
    ASSIGN_OR_RETURN(const int64_t size, InferWindowedSize(shape.dim(at), window[i], dilation,
                                                           attrs.strides[at], attrs.padding));
    output.Set(at, size);
  }
  return output;
}

}  // namespace muster
