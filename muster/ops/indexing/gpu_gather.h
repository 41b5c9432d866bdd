// Rows picked by index on a card, for Gather and for variables.
#pragma once

#include <array>

#include "muster/ops/gpu_kernel.h"
#include "muster/ops/indexing/nd_indices.h"

namespace muster {

// params is [batch, outer, rows, inner], indices [batch, n], the result [batch, outer, n, inner].
struct GatherSizes {
  int64_t batch = 1;
  int64_t outer = 1;
  int64_t rows = 1;
  int64_t inner = 1;
  int64_t indices = 1;
};

// A member of the kernel that uses it.
class GpuGatherer {
 public:
  // Of elements of the size of `dtype`; `index` is int32 or int64.
  GpuGatherer(GpuKernel& kernel, DType dtype, DType index);
  // Indices that are out of range give zeros, as in TensorFlow.
  absl::Status Gather(const Tensor& params, const Tensor& indices, GatherSizes sizes,
                      Tensor& output) const;

 private:
  // By element, and by 16 bytes.
  const std::array<const GpuFunction, 2> gather_;
};

// Slices picked by index tuples, likewise.
class GpuNdGatherer {
 public:
  GpuNdGatherer(GpuKernel& kernel, DType dtype, DType index);
  absl::Status Gather(const Tensor& params, const Tensor& indices, const GatherNdPlan& plan,
                      Tensor& output) const;

 private:
  const std::array<const GpuFunction, 2> gather_;
};

}  // namespace muster
