// Slices written or added at index tuples on a card, for new tensors and for variables.
#pragma once

#include "muster/ops/gpu_kernel.h"

namespace muster {

// A member of the kernel that uses it.
class GpuNdScatterer {
 public:
  // `how` is "ScatterAdd", "ScatterSub" or "ScatterUpdate" of scatter_nd.cu; `index` is int32 or
  // int64.
  GpuNdScatterer(GpuKernel& kernel, const char* how, DType dtype, DType index);
  // Into `output`, whose slices have `inner` elements; tuples that are out of range are ignored, as
  // in TensorFlow. Requires: the shapes fit.
  absl::Status Scatter(const Tensor& indices, const Tensor& updates, int64_t inner,
                       Tensor& output) const;

 private:
  const GpuFunction scatter_;
};

}  // namespace muster
