// What the files of maximum pooling share.
#pragma once

#include <limits>

#include "muster/ops/nn/window.h"

namespace muster {

using PoolTypes =
    Types<Half, Bfloat16, float, double, int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t>;

// The value below all others of T: what an empty window gives.
template <typename T>
T LowestOf() {
  return std::numeric_limits<T>::lowest();
}
template <>
inline Half LowestOf<Half>() {
  return Half::FromBits(0xFBFF);
}
template <>
inline Bfloat16 LowestOf<Bfloat16>() {
  return Bfloat16::FromBits(0xFF7F);
}

// `attrs` with the window that MaxPoolV2 and its gradients take as inputs.
absl::StatusOr<PoolAttrs> WithInputWindow(PoolAttrs attrs, const Tensor& ksize,
                                          const Tensor& strides);
// What MaxPool and MaxPoolV2 check; gives the attributes with the window of either.
absl::StatusOr<PoolAttrs> CheckedMaxPool(const KernelContext& c, PoolAttrs attrs);
// The same for MaxPoolGrad (`is_backward`: from outputs to inputs), MaxPoolGradGrad and their
// second versions.
absl::StatusOr<PoolWindow> CheckedMaxPoolGradient(const KernelContext& c, PoolAttrs attrs,
                                                  bool is_backward);
absl::StatusOr<PoolWindow> CheckedMaxPoolWithArgmax(const KernelContext& c, const PoolAttrs& attrs);
absl::StatusOr<PoolWindow> CheckedMaxPoolGradWithArgmax(const KernelContext& c,
                                                        const PoolAttrs& attrs);
// Shape rule of poolings whose window is in the last two inputs. An unknown shape where it is
// not known yet.
absl::StatusOr<PartialShape> InferInputWindow(ShapeContext& c);

}  // namespace muster
