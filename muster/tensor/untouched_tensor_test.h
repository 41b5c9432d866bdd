// Tensors of any size that cost nothing, for tests of limits: reading an element crashes.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>

#include "muster/tensor/tensor.h"

namespace muster {

inline Tensor UntouchedTensor(DType dtype, const Shape& shape) {
  const size_t bytes = static_cast<size_t>(shape.num_elements()) * DTypeSize(dtype);
  void* const base =
      mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  EXPECT_NE(base, MAP_FAILED);
  return *Tensor::FromBuffer(
      dtype, shape, Buffer::AdoptExternal(base, bytes, [base, bytes] { munmap(base, bytes); }));
}

}  // namespace muster
