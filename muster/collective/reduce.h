// out[i] = a[i] op b[i] on plain memory, for every numeric type.
#pragma once

#include <cstddef>
#include <cstdint>

#include "muster/base/status.h"
#include "muster/tensor/dtype.h"

namespace muster::collective {

enum class ReduceOp : uint8_t { kAdd, kMul, kMin, kMax };

struct Reduction {
  DType dtype = DType::kFloat;
  ReduceOp op = ReduceOp::kAdd;
  bool mean = false;  // divides by the number of ranks at the end; integers towards zero
};

// The inner loops for one Reduction. Pointers need no alignment; `out` may be `a` or `b`. Where the
// elements stand in a call does not change their result, and the order of a and b is kept.
struct ReduceKernel {
  void (*combine)(void* out, const void* a, const void* b, size_t count) = nullptr;
  void (*divide)(void* data, size_t count, int64_t divisor) = nullptr;
  size_t element_bytes = 0;
};

// InvalidArgument for types without arithmetic and for Min or Max of complex numbers.
absl::StatusOr<ReduceKernel> FindReduceKernel(const Reduction& reduction);

}  // namespace muster::collective
