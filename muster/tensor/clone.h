#pragma once

#include "muster/tensor/tensor.h"

namespace muster {

// A copy with memory of its own, of a tensor that may be large. ResourceExhausted when the memory
// is refused.
absl::StatusOr<Tensor> TryClone(const Tensor& tensor, Allocator& allocator = HostAllocator());

// Element-wise copies that are right for every type: `count` elements.
void CopyElements(DType dtype, const char* from, char* to, int64_t count);

}  // namespace muster
