// Reductions on GPUs: the plans of reduce.h, run by the functions of reduce.cuh.
#pragma once

#include <string>

#include "muster/ops/gpu_kernel.h"
#include "muster/ops/math/elementwise_gpu.h"
#include "muster/ops/math/reduce.h"

namespace muster {

// The layout of the structs in reduce.cuh.
struct GpuReduceWalk {
  static constexpr int kMaxDims = 5;
  GpuDivisor sizes[kMaxDims];
  int64_t strides[kMaxDims] = {};
  int64_t dims = 0;
};
struct GpuReducePlan {
  int64_t outputs = 1, terms = 1, piece = 1, finish_terms = 1;
  int32_t lanes = 1, lanes_shift = 0;
  int32_t by_rows = 0, packed = 0;
  GpuReduceWalk kept, reduced;
};

// The functions for one op, as members of the kernel that uses them.
class GpuReducer {
 public:
  // `op` is a struct of math/reduction.cu: "Sum<float>"; its accumulators are not larger than an
  // element and so many bytes.
  GpuReducer(GpuKernel& kernel, const std::string& op, int64_t accumulator_bytes = 4);

  // Reduces `input` into `output`, which has plan.output elements.
  absl::Status Run(KernelContext& c, const ReductionPlan& plan, const Tensor& input,
                   Tensor& output) const;

 private:
  const int64_t accumulator_bytes_;
  GpuFunction reduce_;
  GpuFunction merge_;
};

}  // namespace muster
