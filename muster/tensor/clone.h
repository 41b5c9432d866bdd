#pragma once

#include "muster/tensor/tensor.h"

namespace muster {

// A copy with memory of its own, of a tensor that may be large. ResourceExhausted when the memory
// cannot be had.
absl::StatusOr<Tensor> TryClone(const Tensor& tensor, Allocator& allocator = HostAllocator());

}  // namespace muster
