// Running sums over the threads of a block.
#pragma once

#include "muster/ops/gpu.cuh"

constexpr int kScanThreads = 256;

// The sum of `value` of all threads up to and including the calling one; `total` is that of all.
// Requires: kScanThreads threads, all of which call it.
template <typename C>
__device__ C ScanBlock(C value, C& total) {
  __shared__ C sums[kScanThreads];
  __syncthreads();
  sums[threadIdx.x] = value;
  __syncthreads();
  for (int distance = 1; distance < kScanThreads; distance *= 2) {
    const C before = int(threadIdx.x) >= distance ? sums[threadIdx.x - distance] : C(0);
    __syncthreads();
    sums[threadIdx.x] += before;
    __syncthreads();
  }
  total = sums[kScanThreads - 1];
  return sums[threadIdx.x];
}

// Of counts[0..count), by one block: each becomes the sum of those before it; counts[count] becomes
// the sum of all.
__device__ inline void ScanCounts(int64* counts, int64 count) {
  int64 before = 0;
  for (int64 first = 0; first < count; first += kScanThreads) {
    const int64 i = first + threadIdx.x;
    const int64 value = i < count ? counts[i] : 0;
    int64 total = 0;
    const int64 sum = ScanBlock(value, total);
    if (i < count) counts[i] = before + sum - value;
    before += total;
  }
  if (threadIdx.x == 0) counts[count] = before;
}
