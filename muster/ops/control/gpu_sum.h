// Sums on a card where the type is known only when the kernel runs; and how add_n.cu is launched.
#pragma once

#include "muster/ops/gpu_kernel.h"

namespace muster {

// The layout of the struct in add_n.cu.
struct GpuAddends {
  static constexpr int kMost = 32;
  const void* at[kMost] = {};
  int64_t count = 0;
};

// `sum` may be the memory of `a`. Requires: one type of numbers and one shape, in the card's
// memory. The function is compiled when the first sum of the type is wanted.
absl::Status GpuSum(Gpu& gpu, const Tensor& a, const Tensor& b, Tensor& sum);

}  // namespace muster
