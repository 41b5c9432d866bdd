// Products of small matrices: cuBLAS takes about as long as two of these launches to begin and end.
#include "muster/ops/gpu.cuh"

constexpr int kTile = 16;    // rows and columns of the result that a block computes
constexpr int kInner = 128;  // of the inner dimension, loaded at once

struct SmallSize {
  int32 m, n, k;
  int32 transpose_a, transpose_b, has_relu;
};

// c = a b, with `bias` (null: none) added to each row, and Relu of it. Sums are in the order of the
// inner dimension. `columns` (null: not asked for) are the sums of the columns of b.
template <typename T>
__global__ void SmallProduct(const T* a, const T* b, const T* bias, T* c, T* columns, SmallSize s) {
  using C = Compute<T>;
  __shared__ C left[kTile][kInner + 1];
  __shared__ C right[kInner][kTile + 1];
  const int thread = int(threadIdx.x);
  const int row = thread / kTile, column = thread % kTile;
  const int first_row = int(blockIdx.y) * kTile, first_column = int(blockIdx.x) * kTile;
  const bool sums_columns = columns != nullptr && blockIdx.y == 0;
  C sum = 0, part = 0;
  for (int begin = 0; begin < s.k; begin += kInner) {
    __syncthreads();
#pragma unroll
    for (int step = 0; step < kTile * kInner / (kTile * kTile); ++step) {
      const int i = step * kTile * kTile + thread;
      const int r = s.transpose_a ? i % kTile : i / kInner;
      const int in_a = s.transpose_a ? i / kTile : i % kInner;
      const int at_row = first_row + r, at_a = begin + in_a;
      const bool is_in_a = at_row < s.m && at_a < s.k;
      const int64 from_a = s.transpose_a ? int64(at_a) * s.m + at_row : int64(at_row) * s.k + at_a;
      left[r][in_a] = is_in_a ? Load(a, from_a) : C(0);
      const int q = s.transpose_b ? i / kInner : i % kTile;
      const int in_b = s.transpose_b ? i % kInner : i / kTile;
      const int at_column = first_column + q, at_b = begin + in_b;
      const bool is_in_b = at_column < s.n && at_b < s.k;
      const int64 from_b =
          s.transpose_b ? int64(at_column) * s.k + at_b : int64(at_b) * s.n + at_column;
      right[in_b][q] = is_in_b ? Load(b, from_b) : C(0);
    }
    __syncthreads();
    const int count = s.k - begin < kInner ? s.k - begin : kInner;
#pragma unroll 8
    for (int i = 0; i < count; ++i) sum += left[row][i] * right[i][column];
    if (sums_columns)
      for (int i = row; i < count; i += kTile) part += right[i][column];
  }
  const int at_row = first_row + row, at_column = first_column + column;
  if (sums_columns) {
    __syncthreads();
    left[row][column] = part;
    __syncthreads();
    if (row == 0 && at_column < s.n) {
      C total = 0;
      for (int i = 0; i < kTile; ++i) total += left[i][column];
      Store(columns, at_column, total);
    }
  }
  if (at_row >= s.m || at_column >= s.n) return;
  if (bias != nullptr) sum += Load(bias, at_column);
  if (s.has_relu && sum < C(0)) sum = C(0);
  Store(c, int64(at_row) * s.n + at_column, sum);
}
