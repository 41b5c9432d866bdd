// Reductions on GPUs: the plans of reduce.h, run by the functions of reduce.cuh.
#pragma once

#include <string>

#include "muster/ops/gpu_kernel.h"
#include "muster/ops/math/reduce.h"

namespace muster {

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
