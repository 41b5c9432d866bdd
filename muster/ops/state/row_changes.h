// What kernels for GPUs that change single rows share: the structs of row_changes.cuh and what
// comes before the functions that use them.
#pragma once

#include "muster/ops/gpu_kernel.h"
#include "muster/ops/state/row_order.h"

namespace muster {

constexpr int64_t kChunk = 32;
constexpr int64_t kChunks = 32;
constexpr int64_t kFewThreads = 128;
constexpr int64_t kMostFew = 32 * kFewThreads;

struct RowChanges {
  const void* rows = nullptr;
  const void* positions = nullptr;
  int64_t count = 0;
  int64_t num_rows = 0;
  int64_t elements = 0;
  int32_t lanes = 1, sums = 0;
};
struct FewRows {
  const void* indices = nullptr;
  int64_t count = 0;
  int64_t num_rows = 0;
  int64_t elements = 0;
  int32_t lanes = 1, sums = 0;
  int32_t has_wide_indices = 0, unused = 0;
};

// For functions that take FewRows, on GridForFew. Requires: at most kMostFew indices.
FewRows FewRowsOf(const Tensor& indices, int64_t num_rows, int64_t elements, bool sums);
GpuGrid GridForFew(const FewRows& few);

// A member of the kernel that uses it.
class GpuRowChanges {
 public:
  GpuRowChanges(GpuKernel& kernel, DType dtype, DType index);

  struct Ordered {
    RowChanges changes;
    GpuRowOrder::Order order;
    // Invalid tensors where gradients are not summed.
    Tensor sums;
    Tensor sums_of_sums;
    const void* sums_memory() const { return sums.valid() ? sums.raw() : nullptr; }
    const void* sums_of_sums_memory() const {
      return sums_of_sums.valid() ? sums_of_sums.raw() : nullptr;
    }
  };
  // Orders the indices of gradients of `elements` elements each. Requires: there are some.
  absl::StatusOr<Ordered> Order(KernelContext& c, const Tensor& gradient, const Tensor& indices,
                                int64_t num_rows, int64_t elements, bool sums) const;

 private:
  const GpuRowOrder order_;
  const GpuFunction sum_chunks_;
};

}  // namespace muster
