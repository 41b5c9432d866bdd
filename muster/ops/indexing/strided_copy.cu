// Copies of strided boxes, which know elements by their size only (gpu_mover.cc launches them).
#include "muster/ops/indexing/moving.cuh"

// One dimension of a box.
struct Axis {
  QuickDivider size;
  int64 from_stride, to_stride;
};
constexpr int kMostAxes = 8;
constexpr int kAxesOfSmall = 4;
template <int most>
struct BoxOf {
  const void* from;
  void* to;
  uint32 count;
  int rank;
  Axis axes[most];  // the last one changes fastest
};
using Box = BoxOf<kMostAxes>;

struct Offsets {
  int64 from, to;
};
template <int most>
__device__ __forceinline__ Offsets OffsetsOf(uint32 index, const Axis (&axes)[most], int rank) {
  Offsets offsets = {0, 0};
  for (int i = rank - 1; i > 0; --i) {
    const uint32 rest = axes[i].size.Quotient(index);
    const int64 at = index - rest * axes[i].size.divisor;
    offsets.from += at * axes[i].from_stride;
    offsets.to += at * axes[i].to_stride;
    index = rest;
  }
  if (rank > 0) {
    offsets.from += index * axes[0].from_stride;
    offsets.to += index * axes[0].to_stride;
  }
  return offsets;
}

// Every thread has several loads under way at once.
template <typename E, int most>
__device__ __forceinline__ void CopyOne(const BoxOf<most>& box) {
  constexpr int kAtOnce = 4;
  const E* const from = static_cast<const E*>(box.from);
  E* const to = static_cast<E*>(box.to);
  const uint32 step = gridDim.x * blockDim.x;
  for (uint32 first = blockIdx.x * blockDim.x + threadIdx.x; first < box.count;
       first += kAtOnce * step) {
    E elements[kAtOnce];
    int64 places[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const uint32 i = first + k * step;
      if (i >= box.count) continue;
      const Offsets offsets = OffsetsOf(i, box.axes, box.rank);
      elements[k] = from[offsets.from];
      places[k] = offsets.to;
    }
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      if (first + k * step < box.count) to[places[k]] = elements[k];
    }
  }
}

template <typename E>
__global__ void CopyBox(Box box) {
  CopyOne<E>(box);
}

// Several of them; blockIdx.y says which.
constexpr int kMostBoxes = 16;
struct BoxList {
  BoxOf<kAxesOfSmall> list[kMostBoxes];
};
template <typename E>
__global__ void CopyBoxes(BoxList boxes) {
  CopyOne<E>(boxes.list[blockIdx.y]);
}

// A matrix, or many of them, whose rows are read and whose columns are written as neighbours.
constexpr int kTile = 32;
constexpr int kTileThreads = 8;  // in y; kTile in x
struct Tiles {
  const void* from;
  void* to;
  uint32 rows, columns;
  int64 column_from_stride, row_to_stride;
  uint32 count;
  QuickDivider row_tiles, column_tiles;
  int rank;
  Axis axes[kMostAxes];  // around the matrices
};
template <typename E>
__global__ void CopyTiles(Tiles tiles) {
  __shared__ E tile[kTile][kTile + 1];
  for (uint32 index = blockIdx.x; index < tiles.count; index += gridDim.x) {
    const uint32 above = tiles.column_tiles.Quotient(index);
    const uint32 first_column = (index - above * tiles.column_tiles.divisor) * kTile;
    const uint32 matrix = tiles.row_tiles.Quotient(above);
    const uint32 first_row = (above - matrix * tiles.row_tiles.divisor) * kTile;
    const Offsets offsets = OffsetsOf(matrix, tiles.axes, tiles.rank);
    const E* const from = static_cast<const E*>(tiles.from) + offsets.from;
    E* const to = static_cast<E*>(tiles.to) + offsets.to;
    for (uint32 k = threadIdx.y; k < kTile; k += kTileThreads) {
      const uint32 row = first_row + threadIdx.x, column = first_column + k;
      if (row < tiles.rows && column < tiles.columns)
        tile[k][threadIdx.x] = from[row + column * tiles.column_from_stride];
    }
    __syncthreads();
    for (uint32 k = threadIdx.y; k < kTile; k += kTileThreads) {
      const uint32 row = first_row + k, column = first_column + threadIdx.x;
      if (row < tiles.rows && column < tiles.columns)
        to[row * tiles.row_to_stride + column] = tile[threadIdx.x][k];
    }
    __syncthreads();
  }
}
