// Matrix products on a card together with what follows them, by cublasLt, which is loaded when the
// first one is set up.
//
// cublasLt names several ways to compute a product. When a size is first seen they are timed on the
// card, against a product of cuBLAS' and another pass over its result as well, and what is fastest
// is kept for the process. TF_DETERMINISTIC_OPS=1 takes the first one that cublasLt names.
#pragma once

#include "muster/base/status.h"
#include "muster/device/gpu/gpu.h"
#include "muster/ops/linalg/gemm.h"
#include "muster/tensor/dtype.h"

namespace muster {

// c = a b + bias: the vector is added to each row. Elements are in device memory.
struct GpuBiasedProduct {
  GemmShape shape;  // without lda, ldb and ldc: rows follow each other
  const void* a = nullptr;
  const void* b = nullptr;
  const void* bias = nullptr;
  void* c = nullptr;
};

// For types that PrepareGpuProducts has prepared the card for: float, half and bfloat16. False
// where cublasLt is missing, cannot do it, or is slower than the parts: then nothing was done.
absl::StatusOr<bool> MultiplyWithBiasOnGpu(Gpu& gpu, DType dtype, const GpuBiasedProduct& product);

}  // namespace muster
