#include "muster/ops/nn/window.h"

#include <algorithm>

#include "absl/strings/str_join.h"

namespace muster {
namespace {

// Sizes beyond this would overflow when multiplied with each other.
constexpr int64_t kLargestSize = int64_t{1} << 31;
// So that a padded size fits an int64.
constexpr int64_t kLargestPadding = int64_t{1} << 60;

// The first number that is not positive, or 1.
int64_t FirstNotPositive(absl::Span<const int64_t> values) {
  const auto found = std::find_if(values.begin(), values.end(), [](int64_t v) { return v <= 0; });
  return found == values.end() ? 1 : *found;
}

}  // namespace

absl::StatusOr<int64_t> InferWindowedSize(int64_t input, int64_t filter, int64_t dilation,
                                          int64_t stride, absl::string_view padding, int64_t before,
                                          int64_t after) {
  if (stride <= 0) return InvalidArgument("Stride must be > 0, but got ", stride);
  if (dilation < 1) return InvalidArgument("Dilation rate must be >= 1, but got ", dilation);
  if (padding == "SAME") return input < 0 ? -1 : (input + stride - 1) / stride;
  if (input < 0 || filter < 0) return -1;
  const int64_t effective = filter == 0 ? 0 : (filter - 1) * dilation + 1;
  const int64_t padded = input + before + after;
  if (padded < effective) {
    return InvalidArgument("Negative dimension size caused by subtracting ", effective, " from ",
                           padded);
  }
  return (padded - effective + stride) / stride;
}

absl::StatusOr<std::vector<int64_t>> ReadSizes(const Node& node, absl::string_view attr) {
  ASSIGN_OR_RETURN(const std::vector<int32_t> sizes, node.Attr<std::vector<int32_t>>(attr));
  return std::vector<int64_t>(sizes.begin(), sizes.end());
}

absl::StatusOr<ImageAxes> AxesOf(absl::string_view data_format) {
  if (data_format == "NHWC") return ImageAxes();
  if (data_format == "NCHW") return ImageAxes{2, 3, 1};
  return Unimplemented("data format ", data_format, " is not supported");
}

absl::Status CheckExplicitPadding(absl::string_view padding,
                                  absl::Span<const int64_t> explicit_paddings,
                                  const ImageAxes& axes) {
  if (padding != "EXPLICIT") {
    if (explicit_paddings.empty()) return absl::OkStatus();
    return InvalidArgument(
        "explicit_paddings attribute must be empty if the padding attribute is not EXPLICIT");
  }
  if (explicit_paddings.size() != 8) {
    return InvalidArgument("explicit_paddings attribute must contain 8 values, but got: ",
                           explicit_paddings.size());
  }
  for (int64_t value : explicit_paddings) {
    if (value < 0) return InvalidArgument("All elements of explicit_paddings must be nonnegative");
  }
  const int c = axes.channels;
  if (explicit_paddings[0] != 0 || explicit_paddings[1] != 0 || explicit_paddings[2 * c] != 0 ||
      explicit_paddings[2 * c + 1] != 0) {
    return InvalidArgument(
        "Nonzero explicit padding in the batch or depth dimensions is not supported");
  }
  for (int64_t value : explicit_paddings) {
    if (value >= kLargestPadding)
      return InvalidArgument("explicit_paddings are too large: ", value);
  }
  return absl::OkStatus();
}

absl::StatusOr<PoolAttrs> ReadPoolAttrs(const Node& node) {
  PoolAttrs attrs;
  const OpDef& def = node.def();
  if (def.FindAttr("ksize") != nullptr) {
    ASSIGN_OR_RETURN(attrs.ksize, ReadSizes(node, "ksize"));
    ASSIGN_OR_RETURN(attrs.strides, ReadSizes(node, "strides"));
  }
  ASSIGN_OR_RETURN(attrs.padding, node.Attr<std::string>("padding"));
  if (def.FindAttr("explicit_paddings") != nullptr) {
    ASSIGN_OR_RETURN(attrs.explicit_paddings, node.Attr<std::vector<int64_t>>("explicit_paddings"));
  }
  if (def.FindAttr("data_format") != nullptr) {
    ASSIGN_OR_RETURN(attrs.data_format, node.Attr<std::string>("data_format"));
  }
  return attrs;
}

Shape ChannelsToLast(const Shape& shape) {
  Dims dims = shape.dims();
  if (dims.size() > 2) std::rotate(dims.begin() + 1, dims.begin() + 2, dims.end());
  return Shape(absl::Span<const int64_t>(dims));
}

Shape ChannelsToSecond(const Shape& shape) {
  Dims dims = shape.dims();
  if (dims.size() > 2) std::rotate(dims.begin() + 1, dims.end() - 1, dims.end());
  return Shape(absl::Span<const int64_t>(dims));
}

PoolAttrs InChannelsLast(PoolAttrs attrs) {
  if (attrs.data_format != "NCHW") return attrs;
  attrs.data_format = "NHWC";
  attrs.of_channels_first = true;
  for (std::vector<int64_t>* const sizes : {&attrs.ksize, &attrs.strides}) {
    if (sizes->size() == 4) std::rotate(sizes->begin() + 1, sizes->begin() + 2, sizes->end());
  }
  std::vector<int64_t>& paddings = attrs.explicit_paddings;
  if (paddings.size() == 8) std::rotate(paddings.begin() + 2, paddings.begin() + 4, paddings.end());
  return attrs;
}

absl::Status CheckPoolAttrs(const PoolAttrs& attrs, const PoolKernel& kernel) {
  if (attrs.data_format != "NHWC")
    return InvalidArgument("Default ", kernel.name, " only supports NHWC on device type CPU");
  if (attrs.ksize.size() != 4)
    return InvalidArgument("Sliding window ksize field must specify 4 dimensions");
  if (attrs.strides.size() != 4) {
    return InvalidArgument("Sliding window ", kernel.strides, " field must specify 4 dimensions");
  }
  if (kernel.name == "MaxPoolingOp" || kernel.name == "MaxPoolingGradWithArgmaxOp")
    RETURN_IF_ERROR(CheckKsizeIsPositive(attrs));
  if (attrs.ksize[0] != 1 || attrs.strides[0] != 1)
    return Unimplemented("Pooling is not yet supported on the batch dimension.");
  if (!kernel.no_depth.empty() && (attrs.ksize[3] != 1 || attrs.strides[3] != 1))
    return Unimplemented(kernel.no_depth, " is not yet supported on the depth dimension.");
  return absl::OkStatus();
}

absl::Status CheckKsizeIsPositive(const PoolAttrs& attrs) {
  if (FirstNotPositive(attrs.ksize) > 0) return absl::OkStatus();
  return InvalidArgument(
      "Sliding window ksize must be positive. The specified or inferred ksize is: ",
      absl::StrJoin(attrs.ksize, ","));
}

absl::Status CheckWindowIsPositive(const PoolWindow& w) {
  const int64_t smallest = std::min(w.window_height, w.window_width);
  if (smallest > 0) return absl::OkStatus();
  return InvalidArgument("ksize must be a positive int32 value, got:", smallest);
}

absl::Status CheckShapeIs(const Shape& shape, const Shape& wanted, absl::string_view what) {
  if (shape == wanted) return absl::OkStatus();
  return InvalidArgument("Expected ", what, " shape to be ", wanted.ToString(), ", but got ",
                         shape.ToString());
}

absl::StatusOr<PoolWindow> MakePoolWindow(const PoolAttrs& attrs, const Shape& input) {
  // The last number is the data format, NHWC.
  if (input.rank() != 4)
    return InvalidArgument("tensor_in_shape must have 2 spatial dimensions. ", input.rank(), " 0");
  for (int64_t size : input.dims()) {
    if (size >= kLargestSize)
      return InvalidArgument("Pooling input is too large: ", input.ToString());
  }
  const bool is_explicit = attrs.padding == "EXPLICIT";
  if (is_explicit) {
    RETURN_IF_ERROR(CheckExplicitPadding(attrs.padding, attrs.explicit_paddings, ImageAxes()));
  }
  const auto pad = [&](int i) { return is_explicit ? attrs.explicit_paddings[i] : 0; };
  // A negative window reaches beyond the image, as in TensorFlow.
  const auto windows = [&](int axis) {
    const int64_t window = attrs.ksize[axis];
    const int64_t beyond = attrs.padding == "SAME" ? 0 : std::max<int64_t>(-window, 0);
    return WindowedOutputSize(input.dim(axis) + beyond, std::max<int64_t>(window, 0), 1,
                              attrs.strides[axis], attrs.padding, pad(2 * axis), pad(2 * axis + 1));
  };

  PoolWindow w;
  w.batch = input.dim(0);
  w.height = input.dim(1);
  w.width = input.dim(2);
  w.channels = input.dim(3);
  w.window_height = attrs.ksize[1];
  w.window_width = attrs.ksize[2];
  w.window_channels = attrs.ksize[3];
  w.stride_height = attrs.strides[1];
  w.stride_width = attrs.strides[2];
  if (w.window_channels <= 0)
    return InvalidArgument("ksize must be a positive int32 value, got:", w.window_channels);
  if (w.window_channels != 1) {
    if (w.window_height != 1 || w.window_width != 1) {
      return Unimplemented(
          "MaxPooling supports exactly one of pooling across depth or pooling across "
          "width/height.");
    }
    if (w.channels % w.window_channels != 0) {
      return Unimplemented(
          "Depthwise max pooling requires the depth window to evenly divide the input depth");
    }
    if (attrs.strides[3] != w.window_channels) {
      return Unimplemented(
          "Depthwise max pooling requires the depth window to equal the depth stride");
    }
  }
  w.out_channels = w.channels / w.window_channels;
  ASSIGN_OR_RETURN(const WindowSize rows, windows(1));
  ASSIGN_OR_RETURN(const WindowSize columns, windows(2));
  w.out_height = rows.output;
  w.out_width = columns.output;
  w.pad_top = rows.padding_before;
  w.pad_left = columns.padding_before;
  const auto check = [](absl::string_view side, int64_t padding, int64_t window) {
    if (padding < window) return absl::OkStatus();
    return InvalidArgument(side, " padding ", padding, " needs to be smaller than the window size ",
                           window);
  };
  if (is_explicit) {
    RETURN_IF_ERROR(check("Top", pad(2), w.window_height));
    RETURN_IF_ERROR(check("Bottom", pad(3), w.window_height));
    RETURN_IF_ERROR(check("Left", pad(4), w.window_width));
    RETURN_IF_ERROR(check("Right", pad(5), w.window_width));
  }
  RETURN_IF_ERROR(Shape::Make({w.batch, w.out_height, w.out_width, w.out_channels}).status());
  return w;
}

absl::StatusOr<PartialShape> InferPool(ShapeContext& c, const PartialShape& input,
                                       const PoolAttrs& attrs, absl::string_view op,
                                       bool pools_depth) {
  if (attrs.data_format == "NCHW_VECT_C") {
    ASSIGN_OR_RETURN(const PartialShape blocks, c.WithRank(input, 5));
    if (blocks.dim(4) != 4 && blocks.dim(4) != 32)
      return InvalidArgument("VECT_C dimension must be 4 or 32, but is ", blocks.dim(4));
  }
  ASSIGN_OR_RETURN(const ImageAxes axes, AxesOf(attrs.data_format));
  ASSIGN_OR_RETURN(const PartialShape shape, c.WithRank(input, 4));
  if (attrs.strides.size() != 4) {
    return InvalidArgument(
        op, " requires the stride attribute to contain 4 values, but got: ", attrs.strides.size());
  }
  if (attrs.ksize.size() != 4) {
    return InvalidArgument(
        op, " requires the ksize attribute to contain 4 values, but got: ", attrs.ksize.size());
  }
  RETURN_IF_ERROR(CheckExplicitPadding(attrs.padding, attrs.explicit_paddings, axes));
  PartialShape output = shape;
  for (const int axis : {axes.height, axes.width, axes.channels}) {
    if (axis == axes.channels && !pools_depth) continue;
    const bool padded = attrs.padding == "EXPLICIT";
    ASSIGN_OR_RETURN(
        const int64_t size,
        InferWindowedSize(shape.dim(axis), attrs.ksize[axis], 1, attrs.strides[axis], attrs.padding,
                          padded ? attrs.explicit_paddings[2 * axis] : 0,
                          padded ? attrs.explicit_paddings[2 * axis + 1] : 0));
    output.Set(axis, size);
  }
  return output;
}

}  // namespace muster
