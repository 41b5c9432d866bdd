// What the kernels of depthwise convolutions for CPUs and GPUs share.
#pragma once

#include "muster/ops/conv/conv_geometry.h"

namespace muster {

// The shape in a vector of four sizes, which the error for input `what` of `op` names.
absl::StatusOr<Shape> DepthwiseShape(const Tensor& sizes, absl::string_view op,
                                     absl::string_view what);
inline absl::StatusOr<Shape> DepthwiseInputShape(const Tensor& sizes) {
  return DepthwiseShape(sizes, "Conv2DBackpropInput", "input_sizes");
}
inline absl::StatusOr<Shape> DepthwiseFilterShape(const Tensor& sizes) {
  return DepthwiseShape(sizes, "Conv2DBackpropFilter", "filter_sizes");
}

// Kernels for GPUs (depthwise_gpu.cc).
void AddGpuDepthwise(OpBuilder& op);
void AddGpuDepthwiseBackpropInput(OpBuilder& op);
void AddGpuDepthwiseBackpropFilter(OpBuilder& op);

}  // namespace muster
