#include "muster/ops/conv/conv_geometry.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace muster {
namespace {

constexpr int64_t kLargestSize = std::numeric_limits<int32_t>::max();

enum class Layout : uint8_t { kAll, kDepthwise };  // what a filter sums: all channels, or one
// When a kernel looks at its paddings and dilations.
enum class Order : uint8_t {
  kDilationsFirst,
  kPaddingsBetween,  // after dilations of other axes, before those of space
  kPaddingsFirst,
  kDilationsLast,  // after the shapes
};

// How TensorFlow's kernel of an op refuses.
struct ConvKernel {
  absl::string_view op;
  absl::string_view name;  // in front of what is said about shapes, of gradients only
  Layout layout;
  Order order;
  // Of strides and dilations that are not in space.
  absl::StatusCode of_strides, of_dilations;
  // Of ranks: in front of the argument, and between the text and the shape of each; gradients do
  // not show it.
  absl::string_view before, input_colon, filter_colon;

  bool is_depthwise() const { return layout == Layout::kDepthwise; }
  bool is_gradient() const { return !name.empty(); }
};

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
constexpr absl::StatusCode kUnimplemented = absl::StatusCode::kUnimplemented;
constexpr ConvKernel kDepthwise = {
    "", "", Layout::kDepthwise, Order::kDilationsFirst, kInvalid, kUnimplemented, "", "", ": "};
constexpr ConvKernel kPlain = {
    "",   "",  Layout::kAll, Order::kDilationsFirst, kUnimplemented, kUnimplemented, "convolution ",
    ": ", ": "};
constexpr ConvKernel kGradients[] = {
    {"Conv2DBackpropInput", "Conv2DCustomBackpropInput", Layout::kAll, Order::kPaddingsBetween,
     kUnimplemented, kUnimplemented, "Conv2DCustomBackpropInput: ", "", ""},
    {"Conv2DBackpropFilter", "Conv2DCustomBackpropFilter", Layout::kAll, Order::kPaddingsFirst,
     kInvalid, kInvalid, "Conv2DCustomBackpropFilter: ", "", ""},
    {"DepthwiseConv2dNativeBackpropInput", "DepthwiseConv2DBackpropInput", Layout::kDepthwise,
     Order::kDilationsLast, kInvalid, kUnimplemented, "DepthwiseConv2DBackpropInput: ", "", ""},
    {"DepthwiseConv2dNativeBackpropFilter", "DepthwiseConv2DBackpropFilter", Layout::kDepthwise,
     Order::kDilationsLast, kInvalid, kUnimplemented, "DepthwiseConv2DBackpropFilter: ", "", ""},
};

const ConvKernel& KernelOf(const ConvAttrs& attrs) {
  for (const ConvKernel& kernel : kGradients)
    if (kernel.op == attrs.op) return kernel;
  return absl::StrContains(attrs.op, "DepthwiseConv2d") ? kDepthwise : kPlain;
}

absl::Status NotInSpace(absl::StatusCode code, absl::string_view what) {
  return absl::Status(code, absl::StrCat("Current implementation does not yet support ", what,
                                         " in the batch and depth dimensions."));
}

absl::Status CheckRank4(const ConvKernel& kernel, const Shape& shape, absl::string_view what,
                        absl::string_view colon) {
  if (shape.rank() == 4) return absl::OkStatus();
  return InvalidArgument(kernel.before, what, " must be 4-dimensional", colon,
                         kernel.is_gradient() ? "" : shape.ToString());
}

absl::Status CheckSizes(const Shape& shape, absl::string_view what) {
  for (int64_t size : shape.dims()) {
    if (size > kLargestSize) return InvalidArgument(what, " is too large: ", shape.ToString());
  }
  return absl::OkStatus();
}

absl::Status CheckBatch(const ConvKernel& kernel, int64_t batch, int64_t of_output) {
  if (of_output == batch) return absl::OkStatus();
  const std::string sizes =
      kernel.is_depthwise() ? ""
                            : absl::StrCat(". Input batch: ", batch,
                                           ", outbackprop batch: ", of_output, ", batch_dim: 0");
  return InvalidArgument(kernel.name, ": input and out_backprop must have the same batch size",
                         sizes);
}

// "[ 1  1  1 -1]": numbers of one width.
std::string InColumns(absl::Span<const int64_t> numbers) {
  size_t width = 0;
  for (const int64_t number : numbers) width = std::max(width, absl::StrCat(number).size());
  return absl::StrCat(
      "[",
      absl::StrJoin(numbers, " ",
                    [width](std::string* out, int64_t number) {
                      absl::StrAppend(out, std::string(width - absl::StrCat(number).size(), ' '),
                                      number);
                    }),
      "]");
}

absl::Status CheckDilationsLength(const ConvAttrs& attrs) {
  if (attrs.dilations.size() == 4) return absl::OkStatus();
  return InvalidArgument("Sliding window dilations field must specify 4 dimensions");
}

absl::Status CheckDilationsInSpace(const ConvAttrs& attrs) {
  RETURN_IF_ERROR(CheckDilationsLength(attrs));
  ASSIGN_OR_RETURN(const ImageAxes axes, AxesOf(attrs.data_format));
  if (attrs.dilations[0] == 1 && attrs.dilations[axes.channels] == 1) return absl::OkStatus();
  return NotInSpace(KernelOf(attrs).of_dilations, "dilations");
}

// Dilations that make sense are possible here, as in TensorFlow's oneDNN kernels.
absl::Status CheckDilations(const ConvAttrs& attrs) {
  const ConvKernel& kernel = KernelOf(attrs);
  RETURN_IF_ERROR(CheckDilationsLength(attrs));
  const absl::Status in_space = CheckDilationsInSpace(attrs);
  ASSIGN_OR_RETURN(const ImageAxes axes, AxesOf(attrs.data_format));
  const int64_t rows = attrs.dilations[axes.height], columns = attrs.dilations[axes.width];
  const bool spreads = rows > 0 && columns > 0;
  if (kernel.is_depthwise() && !kernel.is_gradient()) {
    const bool is_dilated = rows != 1 || columns != 1;
    if (!in_space.ok() || (is_dilated && !(spreads && attrs.data_format == "NHWC"))) {
      return Unimplemented("Current kernel implementation does not support dilations, received ",
                           InColumns(attrs.dilations));
    }
  }
  RETURN_IF_ERROR(in_space);
  if (spreads) return absl::OkStatus();
  return InvalidArgument(
      kernel.is_gradient() && !kernel.is_depthwise()
          ? "Current CPU implementations do not yet support dilation rates larger than 1."
          : "Dilated rates should be larger than 0.");
}

// Ranks, and the batch of a gradient.
absl::Status CheckShapes(const ConvAttrs& attrs, const Shape& input, const Shape& filter,
                         const Shape* out_backprop) {
  RETURN_IF_ERROR(CheckConvAttrs(attrs));
  const ConvKernel& kernel = KernelOf(attrs);
  RETURN_IF_ERROR(CheckRank4(kernel, input, "input", kernel.input_colon));
  RETURN_IF_ERROR(CheckRank4(kernel, filter, "filter", kernel.filter_colon));
  RETURN_IF_ERROR(CheckSizes(input, "Input"));
  RETURN_IF_ERROR(CheckSizes(filter, "filter"));
  if (out_backprop == nullptr) return absl::OkStatus();
  RETURN_IF_ERROR(CheckRank4(kernel, *out_backprop, "out_backprop", ""));
  return CheckBatch(kernel, input.dim(0), out_backprop->dim(0));
}

// The sizes of one axis of the output, compared with those of a gradient.
absl::StatusOr<WindowSize> MakeAxis(const ConvAttrs& attrs, const Shape& input, int axis,
                                    int64_t filter, const Shape* out_backprop) {
  const auto pad = [&](int i) {
    return attrs.padding == "EXPLICIT" ? attrs.explicit_paddings[i] : 0;
  };
  const int64_t stride = attrs.strides[axis], dilation = attrs.dilations[axis];
  ASSIGN_OR_RETURN(const WindowSize size,
                   WindowedOutputSize(input.dim(axis), filter, dilation, stride, attrs.padding,
                                      pad(2 * axis), pad(2 * axis + 1)));
  if (out_backprop == nullptr || out_backprop->dim(axis) == size.output) return size;
  const int64_t actual = out_backprop->dim(axis);
  const ConvKernel& kernel = KernelOf(attrs);
  if (kernel.is_depthwise()) {
    const bool rows = axis == AxesOf(attrs.data_format).value_or(ImageAxes()).height;
    return InvalidArgument(kernel.name, ": Number of ", rows ? "rows" : "cols",
                           " of out_backprop doesn't match computed: actual = ", actual,
                           ", computed = ", size.output);
  }
  return InvalidArgument(
      kernel.name, ": Size of out_backprop doesn't match computed: actual = ", actual,
      ", computed = ", size.output, " spatial_dim: ", axis, " input: ", input.dim(axis),
      " filter: ", filter, " output: ", actual, " stride: ", stride, " dilation: ", dilation);
}

// Everything but the depths of filter and output.
absl::StatusOr<ConvGeometry> MakeSpatial(const ConvAttrs& attrs, const Shape& input,
                                         const Shape& filter, const Shape* out_backprop) {
  ASSIGN_OR_RETURN(const ImageAxes axes, AxesOf(attrs.data_format));
  ConvGeometry g;
  g.batch = input.dim(0);
  g.height = input.dim(axes.height);
  g.width = input.dim(axes.width);
  g.channels = input.dim(axes.channels);
  g.filter_height = filter.dim(0);
  g.filter_width = filter.dim(1);
  g.stride_height = attrs.strides[axes.height];
  g.stride_width = attrs.strides[axes.width];
  g.dilation_height = attrs.dilations[axes.height];
  g.dilation_width = attrs.dilations[axes.width];
  ASSIGN_OR_RETURN(const WindowSize rows,
                   MakeAxis(attrs, input, axes.height, g.filter_height, out_backprop));
  ASSIGN_OR_RETURN(const WindowSize columns,
                   MakeAxis(attrs, input, axes.width, g.filter_width, out_backprop));
  g.out_height = rows.output;
  g.out_width = columns.output;
  g.pad_top = rows.padding_before;
  g.pad_bottom = rows.padding_after;
  g.pad_left = columns.padding_before;
  g.pad_right = columns.padding_after;
  return g;
}

absl::Status EmptyFilter() {
  return InvalidArgument(
      "filter must not have zero elements (i.e. all dimensions must be non-zero)");
}

// What the gradients say of channels that do not make groups; groups that make sense they have
// here, as in TensorFlow's oneDNN kernels.
absl::Status NoGroups(const ConvAttrs& attrs, const Shape& filter, const ConvGeometry& g) {
  if (attrs.op == "Conv2DBackpropInput") {
    return InvalidArgument(
        "Gradients for grouped convolutions are not supported on CPU. Please file a feature "
        "request if you run into this issue. Computed input depth ",
        g.channels, " doesn't match filter input depth ", filter.dim(2));
  }
  if (attrs.op == "Conv2DBackpropFilter") {
    // Wraps around where it does not fit, as TensorFlow's does.
    uint64_t requested = 1;
    for (const int64_t size : {g.filter_height, g.filter_width, g.channels, g.out_channels})
      requested *= static_cast<uint64_t>(size);
    return InvalidArgument("filter_size does not have enough elements, requested ",
                           static_cast<int64_t>(requested), ", got ", filter.num_elements());
  }
  return InvalidArgument("output depth must be evenly divisible by number of groups: ",
                         g.out_channels, " vs ", g.groups);
}

}  // namespace

absl::StatusOr<ConvAttrs> ReadConvAttrs(const Node& node, bool dilations_of_any_size) {
  ConvAttrs attrs;
  attrs.op = node.op();
  ASSIGN_OR_RETURN(attrs.strides, ReadSizes(node, "strides"));
  ASSIGN_OR_RETURN(attrs.dilations, dilations_of_any_size
                                        ? node.Attr<std::vector<int64_t>>("dilations")
                                        : ReadSizes(node, "dilations"));
  ASSIGN_OR_RETURN(attrs.padding, node.Attr<std::string>("padding"));
  // The fused depthwise convolution has none.
  if (node.FindAttr("explicit_paddings") != nullptr) {
    ASSIGN_OR_RETURN(attrs.explicit_paddings, node.Attr<std::vector<int64_t>>("explicit_paddings"));
  }
  ASSIGN_OR_RETURN(attrs.data_format, node.Attr<std::string>("data_format"));
  return attrs;
}

// TensorFlow means this tensor by the other's name.
absl::Status CheckConvOutBackprop(const Shape& out_backprop) {
  if (out_backprop.rank() == 4) return absl::OkStatus();
  return InvalidArgument("input_sizes must be 4-dimensional, got: ", out_backprop.rank());
}

absl::StatusOr<Shape> ConvInputShape(const ConvAttrs& attrs, const Tensor& sizes,
                                     const Shape& filter, const Shape& out_backprop) {
  if (sizes.rank() != 1) {
    return InvalidArgument("Conv2DBackpropInput: input_sizes input must be 1-dim, not ",
                           sizes.rank());
  }
  ASSIGN_OR_RETURN(Dims dims, IntegerValues(sizes));
  if (dims.size() == 2 && filter.rank() == 4 && out_backprop.rank() == 4) {
    ASSIGN_OR_RETURN(const ImageAxes axes, AxesOf(attrs.data_format));
    const Dims space = dims;
    dims = Dims(4);
    dims[0] = out_backprop.dim(0);
    dims[axes.height] = space[0];
    dims[axes.width] = space[1];
    dims[axes.channels] = filter.dim(2);
  }
  if (dims.size() != 4) {
    return InvalidArgument(
        "Conv2DBackpropInput requires input_sizes to contain 4 values or 2 values, but got: ",
        dims.size());
  }
  return Shape::Make(dims);
}

absl::StatusOr<Shape> ConvFilterShape(const Tensor& sizes) {
  if (sizes.rank() != 1) {
    return InvalidArgument("Conv2DCustomBackpropFilter: filter_sizes input must be 1-dim, not ",
                           sizes.rank());
  }
  ASSIGN_OR_RETURN(const Dims dims, IntegerValues(sizes));
  return Shape::Make(dims);
}

absl::Status CheckConvAttrs(const ConvAttrs& attrs) {
  const ConvKernel& kernel = KernelOf(attrs);
  if (attrs.strides.size() != 4)
    return InvalidArgument("Sliding window strides field must specify 4 dimensions");
  if (kernel.order == Order::kDilationsFirst) RETURN_IF_ERROR(CheckDilationsLength(attrs));
  ASSIGN_OR_RETURN(const ImageAxes axes, AxesOf(attrs.data_format));
  const int64_t rows = attrs.strides[axes.height], columns = attrs.strides[axes.width];
  const bool moves = rows > 0 && columns > 0;
  // Unequal strides that make sense are possible here, as in TensorFlow's oneDNN kernels.
  const bool may_differ = moves && attrs.data_format == "NHWC";
  if (kernel.is_depthwise() && !may_differ && rows != columns) {
    return InvalidArgument(
        "Current implementation only supports equal length strides in the row and column "
        "dimensions.");
  }
  if (attrs.strides[0] != 1 || attrs.strides[axes.channels] != 1)
    return NotInSpace(kernel.of_strides, "strides");
  if (!moves) return InvalidArgument("Row and column strides should be larger than 0.");
  const absl::Status paddings = CheckExplicitPadding(attrs.padding, attrs.explicit_paddings, axes);
  switch (kernel.order) {
    case Order::kDilationsLast:
      return paddings;
    case Order::kPaddingsFirst:
      RETURN_IF_ERROR(paddings);
      return CheckDilations(attrs);
    case Order::kPaddingsBetween:
      RETURN_IF_ERROR(CheckDilationsInSpace(attrs));
      RETURN_IF_ERROR(paddings);
      return CheckDilations(attrs);
    case Order::kDilationsFirst:
      RETURN_IF_ERROR(CheckDilations(attrs));
      return paddings;
  }
  return paddings;
}

absl::StatusOr<ConvGeometry> MakeConvGeometry(const ConvAttrs& attrs, const Shape& input,
                                              const Shape& filter, const Shape* out_backprop) {
  RETURN_IF_ERROR(CheckShapes(attrs, input, filter, out_backprop));
  ASSIGN_OR_RETURN(const ImageAxes axes, AxesOf(attrs.data_format));
  const int64_t depth = input.dim(axes.channels), filter_depth = filter.dim(2);
  const absl::string_view kernel = KernelOf(attrs).name;
  if (filter_depth == 0) {
    if (kernel.empty()) return InvalidArgument("filter depth must be stricly positive, got 0");
    return InvalidArgument(kernel, ": filter depth must be strictly greated than zero");
  }
  if (depth % filter_depth != 0) {
    if (!kernel.empty())
      return InvalidArgument(kernel, ": input depth must be evenly divisible by filter depth");
    return InvalidArgument("input depth must be evenly divisible by filter depth: ", depth, " vs ",
                           filter_depth);
  }
  if (out_backprop != nullptr && out_backprop->dim(axes.channels) != filter.dim(3)) {
    return InvalidArgument(kernel, ": filter and out_backprop must have the same out_depth");
  }
  ASSIGN_OR_RETURN(ConvGeometry g, MakeSpatial(attrs, input, filter, out_backprop));
  g.filter_channels = filter_depth;
  g.groups = depth / filter_depth;
  g.out_channels = filter.dim(3);
  ASSIGN_OR_RETURN(const Shape output,
                   Shape::Make({g.batch, g.out_height, g.out_width, g.out_channels}));
  if (out_backprop == nullptr) {
    if (output.num_elements() == 0 || depth == 0) return g;
    if (filter.num_elements() == 0 && attrs.data_format == "NHWC") return EmptyFilter();
  }
  if (g.groups == 0 || g.out_channels % g.groups != 0) return NoGroups(attrs, filter, g);
  return g;
}

absl::StatusOr<ConvGeometry> MakeDepthwiseGeometry(const ConvAttrs& attrs, const Shape& input,
                                                   const Shape& filter, const Shape* out_backprop) {
  RETURN_IF_ERROR(CheckShapes(attrs, input, filter, out_backprop));
  ASSIGN_OR_RETURN(const ImageAxes axes, AxesOf(attrs.data_format));
  const absl::string_view kernel = KernelOf(attrs).name;
  const int64_t depth = input.dim(axes.channels);
  for (const auto& [axis, what] : {std::pair(axes.height, "rows"), std::pair(axes.width, "cols")}) {
    if (input.dim(axis) == kLargestSize) return InvalidArgument("Input ", what, " too large");
  }
  if (depth != filter.dim(2)) {
    if (!kernel.empty())
      return InvalidArgument(kernel, ": input and filter must have the same in_depth");
    return InvalidArgument("input and filter must have the same depth: ", depth, " vs ",
                           filter.dim(2));
  }
  if (out_backprop != nullptr && out_backprop->dim(axes.channels) != depth * filter.dim(3)) {
    return InvalidArgument(kernel, ": depth_multiplier * in_depth not equal to out_depth");
  }
  if (out_backprop != nullptr) RETURN_IF_ERROR(CheckDilations(attrs));
  ASSIGN_OR_RETURN(ConvGeometry g, MakeSpatial(attrs, input, filter, out_backprop));
  // A group per channel: [h, w, channels, multiplier] has the memory layout of [h, w, 1, channels *
  // multiplier].
  g.groups = g.channels;
  g.filter_channels = 1;
  g.out_channels = g.channels * filter.dim(3);
  RETURN_IF_ERROR(Shape::Make({g.batch, g.out_height, g.out_width, g.out_channels}).status());
  return g;
}

absl::Status CheckGpuPaddings(const ConvGeometry& g) {
  if (std::max({g.pad_top, g.pad_bottom, g.pad_left, g.pad_right}) <= kLargestSize / 4)
    return absl::OkStatus();
  return InvalidArgument("explicit_paddings are too large");
}

Shape OutputShape(const ConvAttrs& attrs, const ConvGeometry& g) {
  if (attrs.data_format == "NHWC") return g.output_shape();
  return Shape({g.batch, g.out_channels, g.out_height, g.out_width});
}

absl::Status CheckDepths(int64_t depth, int64_t filter_depth, int64_t out_depth) {
  if (depth < 0 || filter_depth < 0) return absl::OkStatus();
  if (filter_depth == 0) return InvalidArgument("Depth of filter must not be 0");
  if (depth % filter_depth != 0) {
    return InvalidArgument("Depth of input (", depth,
                           ") is not a multiple of input depth of filter (", filter_depth, ")");
  }
  const int64_t groups = depth / filter_depth;
  if (groups == 0) return InvalidArgument("Number of groups must not be 0");
  if (out_depth >= 0 && out_depth % groups != 0) {
    return InvalidArgument("Depth of output (", out_depth,
                           ") is not a multiple of the number of groups (", groups, ")");
  }
  return absl::OkStatus();
}

absl::StatusOr<PartialShape> InferConv(ShapeContext& c, const ConvAttrs& attrs, bool depthwise) {
  const absl::string_view op = depthwise ? "DepthwiseConv2D" : "Conv2D";
  ASSIGN_OR_RETURN(const ImageAxes axes, AxesOf(attrs.data_format));
  ASSIGN_OR_RETURN(const PartialShape input, c.WithRank(c.input(0), 4));
  ASSIGN_OR_RETURN(const PartialShape filter, c.WithRank(c.input(1), 4));
  if (depthwise && attrs.strides.size() != 4) {
    return InvalidArgument(
        op, " requires the stride attribute to contain 4 values, but got: ", attrs.strides.size());
  }
  if (attrs.dilations.size() != 4) {
    return InvalidArgument(op, " requires the dilation", depthwise ? "s" : "",
                           " attribute to contain 4 values, but got: ", attrs.dilations.size());
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
  } else {
    RETURN_IF_ERROR(CheckDepths(depth, filter.dim(2), out_depth));
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
