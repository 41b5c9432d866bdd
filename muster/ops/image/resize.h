// What the ways to resize images have in common: which positions of the input an output position
// falls on, the checks of sizes, and the shape of the result.
#pragma once

#include <cmath>

#include "muster/ops/op.h"

namespace muster {

using ResizableTypes =
    Types<int8_t, uint8_t, int16_t, uint16_t, int32_t, int64_t, Bfloat16, Half, float, double>;

// How output positions map to input positions along one axis.
struct Scaling {
  float scale = 1;
  bool half_pixel = false;

  static Scaling Make(int64_t in, int64_t out, bool align_corners, bool half_pixel) {
    const float scale = align_corners && out > 1
                            ? static_cast<float>(in - 1) / static_cast<float>(out - 1)
                            : static_cast<float>(in) / static_cast<float>(out);
    return {scale, half_pixel};
  }
  float Linear(int64_t i) const {
    const float x = static_cast<float>(i);
    return half_pixel ? (x + 0.5f) * scale - 0.5f : x * scale;
  }
  int64_t Nearest(int64_t i, int64_t size, bool align_corners) const {
    const float x = (half_pixel ? static_cast<float>(i) + 0.5f : static_cast<float>(i)) * scale;
    const int64_t at = static_cast<int64_t>(align_corners ? std::round(x) : std::floor(x));
    return std::clamp<int64_t>(at, 0, size - 1);
  }
};

class Resize : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override;

 protected:
  Scaling ScalingOf(int64_t in, int64_t out) const {
    return Scaling::Make(in, out, align_corners_, half_pixel_);
  }

  bool align_corners_ = false;
  bool half_pixel_ = false;
};

struct ResizeAttrs {
  bool align_corners = false;
  bool half_pixel = false;
};
absl::StatusOr<ResizeAttrs> ReadResizeAttrs(const Node& node);

// Check images and sizes; give the output's shape.
absl::StatusOr<Shape> ResizedShape(const Tensor& images, const Tensor& size);
absl::StatusOr<Shape> BilinearGradShape(const Tensor& grads, const Tensor& original);
absl::StatusOr<Shape> NearestGradShape(const Tensor& grads, const Tensor& size);
absl::Status CheckResizeGradient(const Tensor& grads, const Tensor& original);

// Kernels for GPUs.
KernelFactory MakeGpuResizeBilinear(DType dtype);
KernelFactory MakeGpuResizeBilinearGrad(DType dtype);
KernelFactory MakeGpuResizeNearest(DType dtype);
KernelFactory MakeGpuResizeNearestGrad(DType dtype);

// [batch, size[0], size[1], channels] of the first input.
absl::Status InferResized(ShapeContext& c);

}  // namespace muster
