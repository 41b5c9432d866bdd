// What functions that only move elements share. moving.h has the same structs for the host.
#pragma once

#include "muster/ops/gpu.cuh"

struct alignas(16) Word16 {
  uint64 low, high;
};

// Divides numbers below 2^31 by one that the host knows, without dividing.
struct QuickDivider {
  uint32 divisor, factor, shift;
  __device__ __forceinline__ uint32 Quotient(uint32 number) const {
    return (uint32((uint64(number) * factor) >> 32) + number) >> shift;
  }
};

// Rows of elements: threads in x take turns at the elements of a row, those in y at the rows.
#define FOR_EACH_ROW(r, rows)                                                      \
  for (int64 r = int64(blockIdx.x) * blockDim.y + threadIdx.y,                     \
             muster_step_##r = int64(gridDim.x) * blockDim.y;                      \
       r < (rows); r += muster_step_##r)
#define FOR_EACH_COLUMN(k, columns)                                                \
  for (int64 k = int64(blockIdx.y) * blockDim.x + threadIdx.x,                     \
             muster_step_##k = int64(gridDim.y) * blockDim.x;                      \
       k < (columns); k += muster_step_##k)

// Which slice of a tensor a tuple of indices names: see GatherNd.
constexpr int kMostTupleAxes = 8;
struct TupleAxes {
  int depth;
  int64 sizes[kMostTupleAxes];
};
// The number of the slice, -1 where an index is out of range.
template <typename Index>
__device__ __forceinline__ int64 SliceOf(const TupleAxes& axes, const Index* tuple) {
  int64 slice = 0;
  for (int d = 0; d < axes.depth; ++d) {
    const int64 index = tuple[d];
    if (index < 0 || index >= axes.sizes[d]) return -1;
    slice = slice * axes.sizes[d] + index;
  }
  return slice;
}
