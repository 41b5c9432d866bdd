// The structs of moving.cuh, for kernels that launch its functions, and how many threads they want.
#pragma once

#include <bit>
#include <cstdint>

#include "muster/ops/gpu_kernel.h"

namespace muster {

struct alignas(16) Word16 {
  uint64_t low = 0, high = 0;
};
// "uint8", "uint16", "uint32", "uint64" or "Word16": elements of this size.
const char* GpuWordName(size_t bytes);

struct QuickDivider {
  QuickDivider() : QuickDivider(1) {}
  // Requires: 1 <= by <= 2^31.
  explicit QuickDivider(int64_t by)
      : divisor(static_cast<uint32_t>(by)),
        shift(static_cast<uint32_t>(std::bit_width(divisor - 1))) {
    factor = static_cast<uint32_t>((((uint64_t{1} << shift) - divisor) << 32) / divisor + 1);
  }

  uint32_t divisor, factor, shift;
};

constexpr int kMostTupleAxes = 8;
struct TupleAxes {
  int depth;
  int64_t sizes[kMostTupleAxes];
};
// The first `depth` axes of `shape`. InvalidArgument, as in TensorFlow, for too many.
absl::StatusOr<TupleAxes> TupleAxesOf(const Shape& shape, int64_t depth);

// For functions that use FOR_EACH_ROW and FOR_EACH_COLUMN.
GpuGrid GridForRows(const GpuFunction& function, int64_t rows, int64_t columns);

// Whether rows of `row_bytes` bytes at these addresses can be moved 16 bytes at a time.
bool RowsAreWide(const void* a, const void* b, int64_t row_bytes);

}  // namespace muster
