// Convolutions for every type: float by oneDNN, the 16-bit floats through float, the rest by plain
// loops. A filter or an image without elements gives zeros.
#pragma once

#include <algorithm>
#include <limits>

#include "muster/ops/conv/convolver.h"
#include "muster/ops/conv/direct_conv.h"

namespace muster {

template <typename T>
inline constexpr bool kThroughFloat = sizeof(T) == 2;

// `count` elements as floats in memory of their own.
template <typename T>
absl::StatusOr<Tensor> ToFloats(const T* from, int64_t count) {
  ASSIGN_OR_RETURN(Tensor tensor, Tensor::Make(DType::kFloat, Shape({count})));
  float* const to = tensor.data<float>();
  for (int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(from[i]);
  return tensor;
}

// Runs run(a, b, out) on float copies of two arrays and rounds the result.
template <typename T, typename F>
absl::Status ThroughFloats(const T* a, int64_t a_size, const T* b, int64_t b_size, T* out,
                           int64_t out_size, F run) {
  ASSIGN_OR_RETURN(Tensor a_floats, ToFloats(a, a_size));
  ASSIGN_OR_RETURN(Tensor b_floats, ToFloats(b, b_size));
  ASSIGN_OR_RETURN(Tensor result, Tensor::Make(DType::kFloat, Shape({out_size})));
  float* const floats = result.data<float>();
  RETURN_IF_ERROR(run(a_floats.data<float>(), b_floats.data<float>(), floats));
  for (int64_t i = 0; i < out_size; ++i) out[i] = static_cast<T>(floats[i]);
  return absl::OkStatus();
}

// oneDNN counts in 32 bits.
inline absl::Status CheckPaddings(const ConvGeometry& g) {
  const int64_t largest = std::max({g.pad_top, g.pad_bottom, g.pad_left, g.pad_right});
  if (largest <= std::numeric_limits<int32_t>::max()) return absl::OkStatus();
  return InvalidArgument("explicit_paddings are too large: ", largest);
}

template <typename T>
absl::Status ConvForward(KernelContext& c, Convolver& convolver, const ConvGeometry& g,
                         const T* input, const T* filter, T* output) {
  RETURN_IF_ERROR(CheckPaddings(g));
  if (g.filter_size() == 0 || g.image_size() == 0) {
    std::fill_n(output, g.batch * g.output_size(), static_cast<T>(0));
    return absl::OkStatus();
  }
  if constexpr (std::is_same_v<T, float>) {
    return convolver.Forward(c, g, input, filter, output);
  } else if constexpr (kThroughFloat<T>) {
    return ThroughFloats(
        input, g.batch * g.image_size(), filter, g.filter_size(), output, g.batch * g.output_size(),
        [&](const float* x, const float* w, float* y) { return convolver.Forward(c, g, x, w, y); });
  } else {
    DirectForward(c, g, input, filter, output);
    return absl::OkStatus();
  }
}

template <typename T>
absl::Status ConvBackwardInput(KernelContext& c, Convolver& convolver, const ConvGeometry& g,
                               const T* filter, const T* dy, T* dx) {
  RETURN_IF_ERROR(CheckPaddings(g));
  if (g.filter_size() == 0 || g.output_size() == 0) {
    std::fill_n(dx, g.batch * g.image_size(), static_cast<T>(0));
    return absl::OkStatus();
  }
  if constexpr (std::is_same_v<T, float>) {
    return convolver.BackwardInput(c, g, filter, dy, dx);
  } else if constexpr (kThroughFloat<T>) {
    return ThroughFloats(filter, g.filter_size(), dy, g.batch * g.output_size(), dx,
                         g.batch * g.image_size(), [&](const float* w, const float* y, float* x) {
                           return convolver.BackwardInput(c, g, w, y, x);
                         });
  } else {
    DirectBackwardInput(c, g, filter, dy, dx);
    return absl::OkStatus();
  }
}

template <typename T>
absl::Status ConvBackwardFilter(KernelContext& c, Convolver& convolver, const ConvGeometry& g,
                                const T* input, const T* dy, T* dw) {
  RETURN_IF_ERROR(CheckPaddings(g));
  if constexpr (std::is_same_v<T, float>) {
    return convolver.BackwardFilter(c, g, input, dy, dw);
  } else if constexpr (kThroughFloat<T>) {
    return ThroughFloats(input, g.batch * g.image_size(), dy, g.batch * g.output_size(), dw,
                         g.filter_size(), [&](const float* x, const float* y, float* w) {
                           return convolver.BackwardFilter(c, g, x, y, w);
                         });
  } else {
    DirectBackwardFilter(c, g, input, dy, dw);
    return absl::OkStatus();
  }
}

}  // namespace muster
