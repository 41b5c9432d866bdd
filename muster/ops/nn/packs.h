// For the launch of functions that use packs.cuh.
#pragma once

#include "muster/ops/gpu_kernel.h"

namespace muster {

// How many threads such a function has use for.
inline int64_t PacksIn(const Tensor& tensor) {
  constexpr int64_t kPackBytes = 16;
  const int64_t bytes = tensor.num_elements() * static_cast<int64_t>(DTypeSize(tensor.dtype()));
  return (bytes + kPackBytes - 1) / kPackBytes;
}

// The types that TensorFlow's GPU kernels of neural networks have, and bfloat16.
inline const std::vector<DType>& GpuFloats() {
  static const auto* const types =
      new std::vector<DType>{DType::kHalf, DType::kBfloat16, DType::kFloat, DType::kDouble};
  return *types;
}

// Without double, which some of those kernels lack.
inline const std::vector<DType>& GpuShortFloats() {
  static const auto* const types =
      new std::vector<DType>{DType::kHalf, DType::kBfloat16, DType::kFloat};
  return *types;
}

// For OpBuilder::GpuTypes: kernels that are made for a type.
template <typename K>
KernelFactory MakeGpu(DType dtype) {
  return [dtype] { return std::make_unique<K>(dtype); };
}

}  // namespace muster
