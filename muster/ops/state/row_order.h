// The rows that indices name, in order, on a card: equal ones stand side by side, so that one group
// of threads can take all that happens to a row. The sort is stable: equal ones keep their order.
#pragma once

#include "muster/ops/gpu_kernel.h"

namespace muster {

// A member of the kernel that uses it.
class GpuRowOrder {
 public:
  // Of indices of type int32 or int64.
  GpuRowOrder(GpuKernel& kernel, DType index);

  struct Order {
    Tensor rows;       // uint32, ascending; `num_rows` for indices that are out of range
    Tensor positions;  // uint32: where they stood among the indices
  };
  // How many functions this launches depends on `num_rows` only. Unimplemented where rows or
  // indices are too many to be counted in 32 bits.
  absl::StatusOr<Order> Sort(KernelContext& c, const Tensor& indices, int64_t num_rows) const;

 private:
  const GpuFunction count_first_;
  const GpuFunction count_;
  const GpuFunction sum_;
  const GpuFunction move_first_;
  const GpuFunction move_;
};

}  // namespace muster
