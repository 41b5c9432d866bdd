// What the matrix-product ops have in common.
#pragma once

#include "muster/base/status.h"
#include "muster/graph/gradients/gradient_context.h"
#include "muster/graph/shape_context.h"
#include "muster/ops/linalg/gemm.h"
#include "muster/ops/op.h"

namespace muster {

using ProductTypes = Types<Half, Bfloat16, float, double, int32_t, int64_t, Complex64, Complex128>;

// ParallelFor of a kernel's context as Gemm wants it.
inline auto Threads(const KernelContext& c) {
  return [&c](int64_t count, double cost, absl::FunctionRef<void(int64_t, int64_t)> body) {
    c.ParallelFor(count, cost, body);
  };
}

// Inputs 0 and 1 of MatMul and its kin: matrices with equal inner sizes; attributes transpose_a and
// transpose_b.
absl::Status MatMulShape(ShapeContext& c);
// The product's sizes, or InvalidArgument in TensorFlow's words.
absl::StatusOr<GemmShape> CheckedProduct(const Shape& a, const Shape& b, bool transpose_a,
                                         bool transpose_b);

// A floating tensor (float or 16-bit) as float; float itself is shared.
absl::StatusOr<Tensor> AsFloat(KernelContext& c, const Tensor& tensor);

// The front end's matmul(a, b) inside a gradient: MatMul for two matrices, BatchMatMulV2 otherwise,
// named "MatMul".
Output EmitMatMul(GradientContext& g, Output a, Output b, bool adjoint_a, bool adjoint_b);
// Conj(x) of complex numbers, x itself otherwise.
Output EmitConj(GradientContext& g, Output x);

}  // namespace muster
