// Rows of a matrix, each of which is worked on by a warp or, when it is long, by a block (rows.h).
#pragma once

#include "muster/ops/gpu.cuh"

template <typename C>
__device__ __forceinline__ C ShuffleXor(C value, int mask) {
  if constexpr (sizeof(C) == 4) {
    return BitCast<C>(__shfl_xor_sync(0xFFFFFFFFu, BitCast<uint32>(value), mask));
  } else {
    return BitCast<C>(__shfl_xor_sync(0xFFFFFFFFu, BitCast<uint64>(value), mask));
  }
}

struct Plus {
  template <typename C>
  static __device__ __forceinline__ C Join(C a, C b) {
    return a + b;
  }
  template <typename C>
  static __device__ __forceinline__ C None() {
    return C(0);
  }
};
// The larger one; NaN is passed over.
struct Larger {
  template <typename C>
  static __device__ __forceinline__ C Join(C a, C b) {
    return a < b || a != a ? b : a;
  }
  template <typename C>
  static __device__ __forceinline__ C None() {
    return -Infinity<C>();
  }
};

// Joins the values of the kThreads threads that share a row; all of them get the result.
template <typename Op, int kThreads, typename C>
__device__ __forceinline__ C ReduceRow(C value) {
  for (int mask = kWarp / 2; mask > 0; mask /= 2) value = Op::Join(value, ShuffleXor(value, mask));
  if constexpr (kThreads > kWarp) {
    __shared__ C warps[kWarp];
    const int lane = int(threadIdx.x) % kWarp;
    __syncthreads();
    if (lane == 0) warps[int(threadIdx.x) / kWarp] = value;
    __syncthreads();
    value = lane < kThreads / kWarp ? warps[lane] : Op::template None<C>();
    for (int mask = kWarp / 2; mask > 0; mask /= 2)
      value = Op::Join(value, ShuffleXor(value, mask));
  }
  return value;
}

// for (int64 row : each of `count`): groups of kThreads threads take turns.
#define FOR_EACH_ROW(row, count)                                                           \
  for (int64 row = (int64(blockIdx.x) * blockDim.x + threadIdx.x) / kThreads,              \
             muster_rows_##row = int64(gridDim.x) * blockDim.x / kThreads;                 \
       row < (count); row += muster_rows_##row)

// The elements of a row that one thread has: the first ones are kept in registers.
template <typename T, int kThreads>
class RowElements {
 public:
  __device__ __forceinline__ RowElements(const T* row, int64 size, int64 stride = 1)
      : row_(row), size_(size), stride_(stride) {
#pragma unroll
    for (int k = 0; k < kKept; ++k) {
      const int64 i = first() + k * kThreads;
      if (i < size) kept_[k] = Load(row, i * stride);
    }
  }
  // Calls f(i, x) for each.
  template <typename F>
  __device__ __forceinline__ void ForEach(F f) const {
#pragma unroll
    for (int k = 0; k < kKept; ++k) {
      const int64 i = first() + k * kThreads;
      if (i < size_) f(i, kept_[k]);
    }
    for (int64 i = first() + kKept * kThreads; i < size_; i += kThreads)
      f(i, Load(row_, i * stride_));
  }

 private:
  static constexpr int kKept = 8;
  static __device__ __forceinline__ int first() { return int(threadIdx.x) % kThreads; }
  const T* const row_;
  const int64 size_, stride_;
  Compute<T> kept_[kKept];
};

// The largest of a row's logits, and the sum of e^(x - largest).
template <typename C>
struct LogitSums {
  C largest;
  C sum;
};
template <int kThreads, typename T>
__device__ __forceinline__ LogitSums<Compute<T>> SumLogits(const RowElements<T, kThreads>& row) {
  using C = Compute<T>;
  C largest = -Infinity<C>();
  row.ForEach([&](int64, C x) { largest = Larger::Join(largest, x); });
  largest = ReduceRow<Larger, kThreads>(largest);
  C sum = 0;
  row.ForEach([&](int64, C x) { sum += exp(x - largest); });
  return {largest, ReduceRow<Plus, kThreads>(sum)};
}
