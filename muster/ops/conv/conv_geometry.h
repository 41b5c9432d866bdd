// The sizes of a convolution of an image with an HWIO filter.
#pragma once

#include <string>
#include <vector>

#include "muster/ops/nn/window.h"

namespace muster {

// The attributes that all convolutions have.
struct ConvAttrs {
  std::string op;
  std::vector<int64_t> strides;
  std::vector<int64_t> dilations;
  std::string padding;
  std::vector<int64_t> explicit_paddings;
  std::string data_format;
};
// `dilations_of_any_size`: those that do not fit an int32 are no error yet.
absl::StatusOr<ConvAttrs> ReadConvAttrs(const Node& node, bool dilations_of_any_size = false);
// What holds for every kernel: strides and dilations of space only.
absl::Status CheckConvAttrs(const ConvAttrs& attrs);

struct ConvGeometry {
  int64_t batch = 0, height = 0, width = 0, channels = 0;
  int64_t filter_height = 0, filter_width = 0,
          filter_channels = 0;  // channels = filter_channels * groups
  int64_t out_height = 0, out_width = 0, out_channels = 0;
  int64_t stride_height = 1, stride_width = 1;
  int64_t dilation_height = 1, dilation_width = 1;
  int64_t pad_top = 0, pad_bottom = 0, pad_left = 0, pad_right = 0;
  int64_t groups = 1;

  Shape input_shape() const { return Shape({batch, height, width, channels}); }
  Shape filter_shape() const {
    return Shape({filter_height, filter_width, filter_channels, out_channels});
  }
  Shape output_shape() const { return Shape({batch, out_height, out_width, out_channels}); }
  int64_t image_size() const { return height * width * channels; }
  int64_t filter_size() const {
    return filter_height * filter_width * filter_channels * out_channels;
  }
  int64_t output_size() const { return out_height * out_width * out_channels; }  // of one image
  // Multiplications for one image.
  double work() const {
    return static_cast<double>(output_size()) *
           static_cast<double>(filter_height * filter_width * filter_channels);
  }
  friend bool operator==(const ConvGeometry&, const ConvGeometry&) = default;
};
// Checks everything that a kernel relies on, in the order in which TensorFlow looks: ranks, sizes,
// depths, and that no product overflows. `out_backprop`: of the gradients, the shape that they are
// given for that of the output. A convolution without output has any filter and any groups; a
// gradient has any filter without elements.
absl::StatusOr<ConvGeometry> MakeConvGeometry(const ConvAttrs& attrs, const Shape& input,
                                              const Shape& filter,
                                              const Shape* out_backprop = nullptr);
// The same for a depthwise convolution: filter [h, w, channels, multiplier]; out_channels =
// channels * multiplier.
absl::StatusOr<ConvGeometry> MakeDepthwiseGeometry(const ConvAttrs& attrs, const Shape& input,
                                                   const Shape& filter,
                                                   const Shape* out_backprop = nullptr);
// Functions for GPUs count pixels in 32 bits.
absl::Status CheckGpuPaddings(const ConvGeometry& g);
// The arguments of Conv2D's gradients that say shapes. The shape of the images in `sizes`; two
// sizes are height and width only: batch and depth come from the other arguments.
absl::Status CheckConvOutBackprop(const Shape& out_backprop);
absl::StatusOr<Shape> ConvInputShape(const ConvAttrs& attrs, const Tensor& sizes,
                                     const Shape& filter, const Shape& out_backprop);
absl::StatusOr<Shape> ConvFilterShape(const Tensor& sizes);
// The output's shape in the layout of the op.
Shape OutputShape(const ConvAttrs& attrs, const ConvGeometry& g);

// Shape rules.
// InvalidArgument where the depths of an image, a filter and an output (-1: unknown) do not make
// groups of channels.
absl::Status CheckDepths(int64_t depth, int64_t filter_depth, int64_t out_depth);
absl::Status InferConv2D(ShapeContext& c);
// Output shape of a (depthwise) convolution from its two shapes.
absl::StatusOr<PartialShape> InferConv(ShapeContext& c, const ConvAttrs& attrs, bool depthwise);
// Reads the shape in input `i`, which must be of rank 4.
absl::StatusOr<PartialShape> InferFromSizes(ShapeContext& c, int i);

}  // namespace muster
