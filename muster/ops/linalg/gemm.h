// Matrix products, row-major: c = op(a) · op(b), or c += where asked. One entry point for MatMul,
// the batched products and the convolutions.
#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"

#include "muster/base/status.h"
#include "muster/tensor/dtype.h"

namespace muster {

// Runs body over [0, count) in parts, maybe at once; the cost is in nanoseconds per item
// (Scheduler::ParallelFor).
using ParallelRunner = absl::FunctionRef<void(int64_t count, double cost_per_item_ns,
                                              absl::FunctionRef<void(int64_t, int64_t)> body)>;

// For callers that are inside a parallel loop already.
void RunSerially(int64_t count, double cost_per_item_ns,
                 absl::FunctionRef<void(int64_t, int64_t)> body);

struct GemmShape {
  int64_t m = 0;  // rows of c
  int64_t n = 0;  // columns of c
  int64_t k = 0;  // terms of each sum; none leaves zeros
  // a lies as [k, m] instead of [m, k]; b as [n, k] instead of [k, n].
  bool transpose_a = false;
  bool transpose_b = false;
  // Complex numbers only: use the conjugates.
  bool conjugate_a = false;
  bool conjugate_b = false;
  // c += instead of c =. Not for the 16-bit floats, whose sums are kept in float.
  bool accumulate = false;
  // Elements from one row to the next as the matrix lies in memory; 0 means that rows follow each
  // other.
  int64_t lda = 0;
  int64_t ldb = 0;
  int64_t ldc = 0;
};

// Fails only when memory for packed operands runs out. Integers wrap around; 16-bit floats are
// summed in float and rounded once. T: float, double, Half, Bfloat16, int16_t, int32_t, int64_t,
// Complex64, Complex128.
template <typename T>
absl::Status Gemm(const GemmShape& shape, const T* a, const T* b, T* c, ParallelRunner parallel);

// Rough nanoseconds that one thread needs for the product.
template <typename T>
double GemmCostNs(int64_t m, int64_t n, int64_t k) {
  constexpr double kLanes = sizeof(T) < 4 ? 8.0 : 32.0 / sizeof(T);
  return static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) / (6.0 * kLanes);
}

}  // namespace muster
