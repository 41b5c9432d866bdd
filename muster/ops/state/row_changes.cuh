// Changes of single rows by gradients that belong to the rows of the same number, for functions in
// which one group of threads takes all that happens to a row. The gradients of a row that occurs
// often are summed by chunks first (SumChunks).
#pragma once

#include "muster/ops/gpu.cuh"

// --- As row_changes.h has them
constexpr int kChunk = 32;   // occurrences of one row that are summed as one
constexpr int kChunks = 32;  // chunks that are summed as one
constexpr int kColumns = 4;  // elements of a row that a thread has at once
constexpr int kFewThreads = 128;
constexpr int kMostFew = kWarp * kFewThreads;
constexpr int kFewWarps = kFewThreads / kWarp;

struct RowChanges {
  const uint32* rows;       // in order
  const uint32* positions;  // of their gradients
  int64 count;
  int64 num_rows;
  int64 elements;  // of a row
  int32 lanes;     // threads that share a row: a power of two, at most a warp
  int32 sums;      // gradients of one row are summed
  __device__ __forceinline__ bool AreOfOneRow(int64 begin, int64 size) const {
    return begin + size <= count && rows[begin] == rows[begin + size - 1];
  }
};

template <typename T>
__device__ __forceinline__ Compute<T> Rounded(Compute<T> value) {
  return Compute<T>(T(value));
}

// sum[c] is that of the gradients of the row at `begin`, for the elements k + c * lanes.
template <typename T>
__device__ __forceinline__ void SumRun(const T* gradient, const RowChanges& changes, int64 begin,
                                       int64 k, const Compute<T>* sums,
                                       const Compute<T>* sums_of_sums, Compute<T>* sum) {
  const int64 elements = changes.elements;
  const uint32 row = changes.rows[begin];
  const auto add = [&](const auto* values) {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const int64 column = k + c * changes.lanes;
      if (column < elements) sum[c] += Load(values, column);
    }
  };
  for (int64 i = begin; i < changes.count && changes.rows[i] == row;) {
    if (i % (kChunk * kChunks) == 0 && changes.AreOfOneRow(i, kChunk * kChunks)) {
      add(sums_of_sums + i / (kChunk * kChunks) * elements);
      i += kChunk * kChunks;
    } else if (i % kChunk == 0 && changes.AreOfOneRow(i, kChunk)) {
      add(sums + i / kChunk * elements);
      i += kChunk;
    } else {
      add(gradient + int64(changes.positions[i]) * elements);
      ++i;
    }
  }
}

struct FewRows {
  const void* indices;
  int64 count;  // at most kMostFew
  int64 num_rows;
  int64 elements;
  int32 lanes, sums;
  int32 has_wide_indices, unused;
  __device__ __forceinline__ int64 operator[](int64 i) const {
    return has_wide_indices ? static_cast<const int64*>(indices)[i]
                            : static_cast<const int32*>(indices)[i];
  }
};

// Without a sort: a block for each index looks at all of them, and that of a row's first occurrence
// does the work. found[0..result) are the places where the index of this block stands, in order.
// 0 for all other blocks.
__device__ inline int FindOccurrences(const FewRows& few, uint32* found) {
  __shared__ int32 comes_before;
  __shared__ int32 counts[kFewWarps];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int64 index = few[blockIdx.x];
  if (index < 0 || index >= few.num_rows) return 0;
  if (threadIdx.x == 0) comes_before = 0;
  __syncthreads();
  // Warps have neighbouring stretches.
  const int rounds = int((few.count + kFewThreads - 1) / kFewThreads);
  const int64 begin = int64(warp) * rounds * kWarp + lane;
  uint32 matches = 0;  // bit r: in round r
  bool is_first = true;
#pragma unroll 4
  for (int round = 0; round < rounds; ++round) {
    const int64 i = begin + round * kWarp;
    if (i >= few.count || few[i] != index) continue;
    matches |= 1u << round;
    if (i < blockIdx.x) is_first = false;
  }
  if (!is_first) comes_before = 1;
  int32 count = __popc(matches);
  for (int offset = kWarp / 2; offset > 0; offset /= 2)
    count += __shfl_xor_sync(0xFFFFFFFFu, count, offset);
  if (lane == 0) counts[warp] = count;
  __syncthreads();
  if (comes_before) return 0;
  int at = 0, total = 0;
  for (int w = 0; w < kFewWarps; ++w) {
    if (w < warp) at += counts[w];
    total += counts[w];
  }
  for (int round = 0; count > 0 && round < rounds; ++round) {
    const bool is_match = (matches >> round) & 1;
    const uint32 ballot = __ballot_sync(0xFFFFFFFFu, is_match);
    if (is_match) found[at + __popc(ballot & ((1u << lane) - 1))] = uint32(begin + round * kWarp);
    at += __popc(ballot);
  }
  __syncthreads();
  return total;
}

// The sum of an element of the rows found; the first few.lanes threads get it. `parts` has an
// element for each thread.
template <typename T>
__device__ Compute<T> SumFound(const T* gradient, const FewRows& few, const uint32* found,
                               int occurrences, int64 column, Compute<T>* parts) {
  using C = Compute<T>;
  const int groups = kFewThreads / few.lanes;
  C sum = C(0);
  if (column < few.elements) {
#pragma unroll 8
    for (int i = threadIdx.x / few.lanes; i < occurrences; i += groups)
      sum += Load(gradient, int64(found[i]) * few.elements + column);
  }
  __syncthreads();
  parts[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x >= few.lanes) return sum;
  for (int g = 1; g < groups && g < occurrences; ++g) sum += parts[g * few.lanes + threadIdx.x];
  return sum;
}
