// Matrix products on a card, by cuBLAS, which is loaded when the first product is set up.
#pragma once

#include <cstdint>
#include <vector>

#include "muster/base/status.h"
#include "muster/device/gpu/gpu.h"
#include "muster/ops/linalg/gemm.h"
#include "muster/tensor/dtype.h"

namespace muster {

// `count` products of one size, whose rows may be apart as GemmShape says; the strides are in
// elements from one product's operand to the next (zero: all have the same). Elements are in device
// memory.
struct GpuProducts {
  GemmShape shape;
  int64_t count = 1;
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  int64_t stride_a = 0, stride_b = 0, stride_c = 0;
  bool adds = false;       // to what is in c
  bool subtracts = false;  // from what is in c
  bool is_exact = false;   // floats are not rounded to TF32
};

inline std::vector<DType> GpuProductTypes() {
  return {DType::kHalf,   DType::kBfloat16,  DType::kFloat,
          DType::kDouble, DType::kComplex64, DType::kComplex128};
}

// NotFound, naming the library, where cuBLAS is missing.
absl::Status PrepareGpuProducts(Gpu& gpu);
// What products compute in, one after the other in the order of the stream; empty where memory was
// short. The card is prepared for them.
struct GpuWorkspace {
  void* memory = nullptr;
  size_t bytes = 0;
};
GpuWorkspace WorkspaceOfGpuProducts(const Gpu& gpu);
// Adds the products to the card's work; the card is prepared for them. `dtype` is one of those
// above. Sums of 16-bit floats are kept in float; floats are multiplied as TF32 unless
// NVIDIA_TF32_OVERRIDE=0.
absl::Status MultiplyOnGpu(Gpu& gpu, DType dtype, const GpuProducts& products);

}  // namespace muster
