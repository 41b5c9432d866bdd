#include "muster/ops/nn/conv_geometry.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace muster {
namespace {

constexpr int64_t kLargestSize = std::numeric_limits<int32_t>::max();

absl::Status CheckRank4(const Shape& shape, absl::string_view what) {
  if (shape.rank() != 4) return InvalidArgument(what, " must be 4-dimensional: ", shape.ToString());
  return absl::OkStatus();
}

absl::Status CheckSizes(const Shape& shape, absl::string_view what) {
  for (int64_t size : shape.dims()) {
    if (size > kLargestSize) return InvalidArgument(what, " is too large: ", shape.ToString());
  }
  return absl::OkStatus();
}

// Everything but the depths.
absl::StatusOr<ConvGeometry> MakeSpatial(const ConvAttrs& attrs, const Shape& input,
                                         const Shape& filter, bool may_be_empty) {
  RETURN_IF_ERROR(CheckConvAttrs(attrs));
  RETURN_IF_ERROR(CheckRank4(input, "input"));
  RETURN_IF_ERROR(CheckRank4(filter, "filter"));
  RETURN_IF_ERROR(CheckSizes(input, "Input"));
  RETURN_IF_ERROR(CheckSizes(filter, "filter"));
  if (filter.num_elements() == 0 && !may_be_empty) {
    return InvalidArgument(
        "filter must not have zero elements (i.e. all dimensions must be non-zero)");
  }
  const auto pad = [&](int i) {
    return attrs.padding == "EXPLICIT" ? attrs.explicit_paddings[i] : 0;
  };
  ConvGeometry g;
  g.batch = input.dim(0);
  g.height = input.dim(1);
  g.width = input.dim(2);
  g.channels = input.dim(3);
  g.filter_height = filter.dim(0);
  g.filter_width = filter.dim(1);
  g.filter_channels = filter.dim(2);
  g.stride_height = attrs.strides[1];
  g.stride_width = attrs.strides[2];
  g.dilation_height = attrs.dilations[1];
  g.dilation_width = attrs.dilations[2];
  ASSIGN_OR_RETURN(const WindowSize rows,
                   WindowedOutputSize(g.height, g.filter_height, g.dilation_height, g.stride_height,
                                      attrs.padding, pad(2), pad(3)));
  ASSIGN_OR_RETURN(const WindowSize columns,
                   WindowedOutputSize(g.width, g.filter_width, g.dilation_width, g.stride_width,
                                      attrs.padding, pad(4), pad(5)));
  g.out_height = rows.output;
  g.out_width = columns.output;
  g.pad_top = rows.padding_before;
  g.pad_bottom = rows.padding_after;
  g.pad_left = columns.padding_before;
  g.pad_right = columns.padding_after;
  return g;
}

// What TensorFlow's kernels call themselves in errors; empty for those that do not.
absl::string_view KernelName(const ConvAttrs& attrs) {
  if (attrs.op == "Conv2DBackpropInput") return "Conv2DCustomBackpropInput";
  if (attrs.op == "Conv2DBackpropFilter") return "Conv2DCustomBackpropFilter";
  if (attrs.op == "DepthwiseConv2dNativeBackpropInput") return "DepthwiseConv2DBackpropInput";
  if (attrs.op == "DepthwiseConv2dNativeBackpropFilter") return "DepthwiseConv2DBackpropFilter";
  return "";
}

bool IsDepthwise(const ConvAttrs& attrs) {
  return absl::StartsWith(attrs.op, "DepthwiseConv2d");
}

// Of all kernels in TensorFlow, some say so with another code.
absl::Status NotInSpace(const ConvAttrs& attrs, absl::string_view what) {
  const bool is_invalid =
      attrs.op == "Conv2DBackpropFilter" || (IsDepthwise(attrs) && what == "strides");
  return absl::Status(
      is_invalid ? absl::StatusCode::kInvalidArgument : absl::StatusCode::kUnimplemented,
      absl::StrCat("Current implementation does not yet support ", what,
                   " in the batch and depth dimensions."));
}

}  // namespace

absl::StatusOr<ConvAttrs> ReadConvAttrs(const Node& node) {
  ConvAttrs attrs;
  attrs.op = node.op();
  ASSIGN_OR_RETURN(attrs.strides, ReadSizes(node, "strides"));
  ASSIGN_OR_RETURN(attrs.dilations, ReadSizes(node, "dilations"));
  ASSIGN_OR_RETURN(attrs.padding, node.Attr<std::string>("padding"));
  // The fused depthwise convolution has none.
  if (node.FindAttr("explicit_paddings") != nullptr) {
    ASSIGN_OR_RETURN(attrs.explicit_paddings, node.Attr<std::vector<int64_t>>("explicit_paddings"));
  }
  ASSIGN_OR_RETURN(attrs.data_format, node.Attr<std::string>("data_format"));
  return attrs;
}

absl::Status CheckConvAttrs(const ConvAttrs& attrs) {
  if (attrs.strides.size() != 4)
    return InvalidArgument("Sliding window strides field must specify 4 dimensions");
  if (attrs.dilations.size() != 4)
    return InvalidArgument("Sliding window dilations field must specify 4 dimensions");
  if (attrs.strides[0] != 1 || attrs.strides[3] != 1) return NotInSpace(attrs, "strides");
  if (attrs.strides[1] <= 0 || attrs.strides[2] <= 0) {
    return InvalidArgument("Row and column strides should be larger than 0.");
  }
  if (attrs.dilations[0] != 1 || attrs.dilations[3] != 1) return NotInSpace(attrs, "dilations");
  if (attrs.dilations[1] <= 0 || attrs.dilations[2] <= 0) {
    return InvalidArgument("Dilated rates should be larger than 0.");
  }
  return CheckExplicitPadding(attrs.padding, attrs.explicit_paddings, ImageAxes());
}

absl::StatusOr<ConvGeometry> MakeConvGeometry(const ConvAttrs& attrs, const Shape& input,
                                              const Shape& filter, bool may_be_empty) {
  ASSIGN_OR_RETURN(ConvGeometry g, MakeSpatial(attrs, input, filter, may_be_empty));
  if (g.filter_channels == 0)
    return InvalidArgument("filter depth must be strictly greater than zero: ", filter.ToString());
  if (g.channels % g.filter_channels != 0) {
    if (const absl::string_view kernel = KernelName(attrs); !kernel.empty())
      return InvalidArgument(kernel, ": input depth must be evenly divisible by filter depth");
    return InvalidArgument("input depth must be evenly divisible by filter depth: ", g.channels,
                           " vs ", g.filter_channels);
  }
  g.groups = g.channels / g.filter_channels;
  g.out_channels = filter.dim(3);
  if (g.groups == 0)
    return InvalidArgument("number of groups must not be 0: input ", input.ToString());
  if (g.out_channels % g.groups != 0) {
    return InvalidArgument("output depth must be evenly divisible by number of groups: ",
                           g.out_channels, " vs ", g.groups);
  }
  RETURN_IF_ERROR(Shape::Make({g.batch, g.out_height, g.out_width, g.out_channels}).status());
  return g;
}

absl::StatusOr<ConvGeometry> MakeDepthwiseGeometry(const ConvAttrs& attrs, const Shape& input,
                                                   const Shape& filter) {
  ASSIGN_OR_RETURN(ConvGeometry g, MakeSpatial(attrs, input, filter, /*may_be_empty=*/false));
  if (g.channels != g.filter_channels) {
    if (const absl::string_view kernel = KernelName(attrs); !kernel.empty())
      return InvalidArgument(kernel, ": input and filter must have the same in_depth");
    return InvalidArgument("input and filter must have the same depth: ", g.channels, " vs ",
                           g.filter_channels);
  }
  // A group per channel: [h, w, channels, multiplier] lies in memory like [h, w, 1, channels *
  // multiplier].
  g.groups = g.channels;
  g.filter_channels = 1;
  g.out_channels = g.channels * filter.dim(3);
  RETURN_IF_ERROR(Shape::Make({g.batch, g.out_height, g.out_width, g.out_channels}).status());
  return g;
}

absl::Status CheckOutBackprop(const ConvAttrs& attrs, const ConvGeometry& g,
                              const Shape& out_backprop) {
  const absl::string_view op = KernelName(attrs);
  if (out_backprop.rank() != 4) return InvalidArgument(op, ": out_backprop must be 4-dimensional");
  if (out_backprop.dim(0) != g.batch) {
    const std::string sizes =
        IsDepthwise(attrs)
            ? ""
            : absl::StrCat(". Input batch: ", g.batch, ", outbackprop batch: ", out_backprop.dim(0),
                           ", batch_dim: 0");
    return InvalidArgument(op, ": input and out_backprop must have the same batch size", sizes);
  }
  if (out_backprop.dim(3) != g.out_channels) {
    return InvalidArgument(op, IsDepthwise(attrs)
                                   ? ": depth_multiplier * in_depth not equal to out_depth"
                                   : ": filter and out_backprop must have the same out_depth");
  }
  const struct {
    int axis;
    int64_t computed, input, filter, stride, dilation;
  } checks[] = {{1, g.out_height, g.height, g.filter_height, g.stride_height, g.dilation_height},
                {2, g.out_width, g.width, g.filter_width, g.stride_width, g.dilation_width}};
  for (const auto& check : checks) {
    const int64_t actual = out_backprop.dim(check.axis);
    if (actual == check.computed) continue;
    if (IsDepthwise(attrs)) {
      return InvalidArgument(op, ": Number of ", check.axis == 1 ? "rows" : "cols",
                             " of out_backprop doesn't match computed: actual = ", actual,
                             ", computed = ", check.computed);
    }
    return InvalidArgument(op, ": Size of out_backprop doesn't match computed: actual = ", actual,
                           ", computed = ", check.computed, " spatial_dim: ", check.axis,
                           " input: ", check.input, " filter: ", check.filter, " output: ", actual,
                           " stride: ", check.stride, " dilation: ", check.dilation);
  }
  return absl::OkStatus();
}

absl::StatusOr<PartialShape> InferConv(ShapeContext& c, const ConvAttrs& attrs, bool depthwise) {
  const absl::string_view op = depthwise ? "DepthwiseConv2D" : "Conv2D";
  ASSIGN_OR_RETURN(const ImageAxes axes, AxesOf(attrs.data_format));
  if (depthwise && attrs.strides.size() != 4) {
    return InvalidArgument(
        op, " requires the stride attribute to contain 4 values, but got: ", attrs.strides.size());
  }
  ASSIGN_OR_RETURN(const PartialShape input, c.WithRank(c.input(0), 4));
  ASSIGN_OR_RETURN(const PartialShape filter, c.WithRank(c.input(1), 4));
  if (attrs.dilations.size() != 4) {
    return InvalidArgument(op, " requires the dilation attribute to contain 4 values, but got: ",
                           attrs.dilations.size());
  }
  if (attrs.strides.size() != 4) {
    return InvalidArgument(
        op, " on data format ", attrs.data_format,
        " requires the stride attribute to contain 4 values, but got: ", attrs.strides.size());
  }
  const int64_t depth = input.dim(axes.channels);
  int64_t out_depth = filter.dim(3);
  if (depthwise) {
    ASSIGN_OR_RETURN(const int64_t merged, ShapeContext::MergeDims(depth, filter.dim(2)));
    out_depth = merged < 0 || out_depth < 0 ? -1 : ShapeContext::MultiplyDims(merged, out_depth);
  } else if (depth >= 0 && filter.dim(2) >= 0) {
    if (filter.dim(2) == 0) return InvalidArgument("Depth of filter must not be 0");
    if (depth % filter.dim(2) != 0) {
      return InvalidArgument("Depth of input (", depth,
                             ") is not a multiple of input depth of filter (", filter.dim(2), ")");
    }
    const int64_t groups = depth / filter.dim(2);
    if (groups == 0) return InvalidArgument("Number of groups must not be 0");
    if (out_depth >= 0 && out_depth % groups != 0) {
      return InvalidArgument("Depth of output (", out_depth,
                             ") is not a multiple of the number of groups (", groups, ")");
    }
  }
  RETURN_IF_ERROR(CheckExplicitPadding(attrs.padding, attrs.explicit_paddings, axes));
  const bool padded = attrs.padding == "EXPLICIT";
  PartialShape output = PartialShape::OfRank(4);
  output.Set(0, input.dim(0));
  output.Set(axes.channels, out_depth);
  for (int i = 0; i < 2; ++i) {
    const int axis = axes.height + i;
    ASSIGN_OR_RETURN(const int64_t size,
                     InferWindowedSize(input.dim(axis), filter.dim(i), attrs.dilations[axis],
                                       attrs.strides[axis], attrs.padding,
                                       padded ? attrs.explicit_paddings[2 * axis] : 0,
                                       padded ? attrs.explicit_paddings[2 * axis + 1] : 0));
    output.Set(axis, size);
  }
  return output;
}

absl::Status InferConv2D(ShapeContext& c) {
  ASSIGN_OR_RETURN(const ConvAttrs attrs, ReadConvAttrs(c.node()));
  ASSIGN_OR_RETURN(PartialShape shape, InferConv(c, attrs, false));
  c.SetOutput(0, std::move(shape));
  return absl::OkStatus();
}

absl::StatusOr<PartialShape> InferFromSizes(ShapeContext& c, int i) {
  ASSIGN_OR_RETURN(const PartialShape sizes, c.InputAsShape(i));
  return c.WithRank(sizes, 4);
}

}  // namespace muster
