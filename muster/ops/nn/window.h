// Sliding windows: what pooling and convolution kernels share about sizes, strides and padding.
#pragma once

#include <string>
#include <vector>

#include "muster/ops/op.h"

namespace muster {

// Output size of a window along one axis for shape rules; -1 where it cannot be known yet.
absl::StatusOr<int64_t> InferWindowedSize(int64_t input, int64_t filter, int64_t dilation,
                                          int64_t stride, absl::string_view padding,
                                          int64_t before = 0, int64_t after = 0);

// A list of numbers that have to fit an int32: strides, windows, dilations.
absl::StatusOr<std::vector<int64_t>> ReadSizes(const Node& node, absl::string_view attr);

// Where height, width and channels stand in a shape of rank 4.
struct ImageAxes {
  int height = 1;
  int width = 2;
  int channels = 3;
};
// Of "NHWC" or "NCHW".
absl::StatusOr<ImageAxes> AxesOf(absl::string_view data_format);

// Explicit padding of rank-4 windows: [before, after] per axis, valid for the padding.
absl::Status CheckExplicitPadding(absl::string_view padding,
                                  absl::Span<const int64_t> explicit_paddings,
                                  const ImageAxes& axes);

// [batch, channels, ...] as [batch, ..., channels], and back. Nothing happens to ranks below two.
Shape ChannelsToLast(const Shape& shape);
Shape ChannelsToSecond(const Shape& shape);

// The attributes of a pooling op.
struct PoolAttrs {
  std::vector<int64_t> ksize;
  std::vector<int64_t> strides;
  std::string padding;
  std::vector<int64_t> explicit_paddings;
  std::string data_format = "NHWC";
  bool of_channels_first = false;  // see InChannelsLast

  // A shape as NHWC, and such a one as the op has it.
  Shape ToLast(const Shape& shape) const {
    return of_channels_first ? ChannelsToLast(shape) : shape;
  }
  Shape FromLast(const Shape& shape) const {
    return of_channels_first ? ChannelsToSecond(shape) : shape;
  }
};
absl::StatusOr<PoolAttrs> ReadPoolAttrs(const Node& node);
// For kernels that pool over NCHW too: the same attributes as those of a pooling over NHWC.
PoolAttrs InChannelsLast(PoolAttrs attrs);

// A pooling over an NHWC image; every size is checked and at least zero.
struct PoolWindow {
  int64_t batch = 0, height = 0, width = 0, channels = 0;
  int64_t window_height = 1, window_width = 1, window_channels = 1;
  int64_t stride_height = 1, stride_width = 1;
  int64_t pad_top = 0, pad_left = 0;
  int64_t out_height = 0, out_width = 0, out_channels = 0;

  Shape output_shape() const { return Shape({batch, out_height, out_width, out_channels}); }
  // The cells of output row/column `i` that are inside the image: [begin, end).
  struct Range {
    int64_t begin, end;
  };
  Range Rows(int64_t i) const { return Clip(i * stride_height - pad_top, window_height, height); }
  Range Columns(int64_t i) const { return Clip(i * stride_width - pad_left, window_width, width); }

 private:
  static Range Clip(int64_t begin, int64_t size, int64_t limit) {
    return {std::max<int64_t>(begin, 0), std::min(begin + size, limit)};
  }
};
// What TensorFlow's kernels of poolings refuse before they look at an input.
struct PoolKernel {
  absl::string_view name;                // "MaxPoolingOp", in errors
  absl::string_view strides = "stride";  // its word for the strides
  absl::string_view no_depth = "";       // set: refuses windows and strides over channels
};
absl::Status CheckPoolAttrs(const PoolAttrs& attrs, const PoolKernel& kernel);
// InvalidArgument that lists a window with a size of zero or less.
absl::Status CheckKsizeIsPositive(const PoolAttrs& attrs);
// The height and width of a window need not be positive: gradients compare shapes with those of
// such a window first, and then refuse it with CheckWindowIsPositive.
absl::StatusOr<PoolWindow> MakePoolWindow(const PoolAttrs& attrs, const Shape& input);
absl::Status CheckWindowIsPositive(const PoolWindow& w);
// InvalidArgument "Expected grad shape to be ..." where the shapes differ.
absl::Status CheckShapeIs(const Shape& shape, const Shape& wanted, absl::string_view what);

// Shape rule of a pooling with known window; `op` names it in errors. `pools_depth`: the channels
// may shrink too.
absl::StatusOr<PartialShape> InferPool(ShapeContext& c, const PartialShape& input,
                                       const PoolAttrs& attrs, absl::string_view op,
                                       bool pools_depth);

}  // namespace muster
