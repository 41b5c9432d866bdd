// Element-wise kernels for GPUs. An op names a function of a .cu file in this folder:
//
//   op.GpuTypes("T", kGpuFloats, UnaryOnGpu("Tanh"));
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "muster/ops/gpu_kernel.h"
#include "muster/ops/math/elementwise.h"

namespace muster {

inline const std::vector<DType> kGpuFloats = {DType::kHalf, DType::kBfloat16, DType::kFloat,
                                              DType::kDouble};
inline const std::vector<DType> kGpuPreciseFloats = {DType::kFloat, DType::kDouble};
inline const std::vector<DType> kGpuComplexes = {DType::kComplex64, DType::kComplex128};
inline const std::vector<DType> kGpuFields = {DType::kHalf,      DType::kBfloat16,
                                              DType::kFloat,     DType::kDouble,
                                              DType::kComplex64, DType::kComplex128};
inline const std::vector<DType> kGpuIntegers = {DType::kInt8,   DType::kInt16, DType::kInt32,
                                                DType::kInt64,  DType::kUint8, DType::kUint16,
                                                DType::kUint32, DType::kUint64};
std::vector<DType> With(std::vector<DType> types, const std::vector<DType>& more);

// Makes a kernel for each type: for OpBuilder::GpuTypes.
using GpuKernels = std::function<KernelFactory(DType)>;

// Of a class whose constructor takes the type.
template <typename K>
GpuKernels KernelOnGpu() {
  return
      [](DType dtype) -> KernelFactory { return [dtype] { return std::make_unique<K>(dtype); }; };
}
GpuKernels UnaryOnGpu(const char* function, const char* file = "math/unary.cu");
GpuKernels BinaryOnGpu(const char* function, const char* file = "math/binary.cu");
// Operands must have equally many elements: the ...Grad ops.
GpuKernels SameSizeBinaryOnGpu(const char* function);
// See ComparisonKernel.
GpuKernels ComparisonOnGpu(const char* function, bool mismatch);

// --- For kernels of other kinds that broadcast; the layout is that of elementwise.cuh
struct GpuDivisor {
  int64_t size = 1;
  uint32_t multiplier = 0;
  uint32_t shift = 0;

  GpuDivisor() = default;
  explicit GpuDivisor(int64_t number);
};
template <int operands>
struct GpuBroadcast {
  static constexpr int kMaxOuter = 7;
  struct Dim {
    GpuDivisor size;
    int64_t strides[operands];
  };
  int64_t count = 0;
  GpuDivisor inner;
  int32_t steps[operands] = {};
  int32_t outer = 0;
  Dim dims[kMaxOuter] = {};
};
// Unimplemented where more dims than any usual shape has do not merge.
template <int operands>
absl::StatusOr<GpuBroadcast<operands>> MakeGpuBroadcast(const BroadcastPlan& plan);

// Threads for functions that handle as many elements at once as fill 16 bytes of the widest type.
int64_t GpuPacks(int64_t count, DType widest);
DType WiderOf(DType a, DType b);
// Some type of .cu files with the size of `dtype`, for functions that only move elements.
const char* GpuWord(DType dtype);

}  // namespace muster
