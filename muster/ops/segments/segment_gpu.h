// Rows joined by segment on GPUs: what SegmentSum and UnsortedSegmentX share.
#pragma once

#include <optional>
#include <string>

#include "muster/ops/gpu_kernel.h"

namespace muster {

// The functions for one op, as members of the kernel that uses them.
class GpuSegments {
 public:
  // `op` is a struct of unsorted_segment.cu.
  GpuSegments(GpuKernel& kernel, const char* op, DType dtype, DType index);

  // Joins rows of `inner` elements into the segments that `output` is made of. Rows whose id is no
  // segment's are left out.
  absl::Status Run(KernelContext& c, const Tensor& data, const Tensor& ids, int64_t inner,
                   Tensor& output) const;

 private:
  GpuFunction start_;
  GpuFunction join_;
  std::optional<GpuFunction> round_;  // 16-bit floats are summed in float and rounded once
};

}  // namespace muster
