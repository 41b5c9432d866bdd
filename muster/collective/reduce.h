// out[i] = a[i] op b[i] on plain memory, for every numeric type.
#pragma once

#include <cstddef>
#include <cstdint>

#include "muster/base/status.h"
#include "muster/runtime/collectives.h"
#include "muster/tensor/dtype.h"

namespace muster::collective {

struct Reduction {
  DType dtype = DType::kFloat;
  MergeOp op = MergeOp::kAdd;
  bool mean = false;  // divides by the number of ranks at the end
};

// The inner loops for one Reduction. Pointers need no alignment; `out` may be `a` or `b`. The
// position of an element in a call does not change its result, and the order of a and b is kept.
// Integers wrap around, and quotients of theirs are cut towards zero. A divisor is rounded to the
// type of the elements first, as TensorFlow does.
struct ReduceKernel {
  void (*combine)(void* out, const void* a, const void* b, size_t count) = nullptr;
  void (*divide)(void* data, size_t count, int64_t divisor) = nullptr;
  size_t element_bytes = 0;
};

// InvalidArgument for types without arithmetic and for Min or Max of complex numbers.
absl::StatusOr<ReduceKernel> FindReduceKernel(const Reduction& reduction);

}  // namespace muster::collective
