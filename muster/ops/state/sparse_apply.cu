// Optimizers that change single rows. A row that occurs several times is taken by one group of
// threads: either its gradients are summed first, in a fixed order, and the formula runs once, or it
// runs for each occurrence, one after the other.
#include "muster/ops/state/formulas.cuh"

// --- As apply_gpu.cc has them
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

// The sums of those aligned chunks that belong to one row as a whole, and of those rows of kChunks
// chunks that do. A block has one row of chunks.
template <typename T>
__global__ void SumChunks(const T* gradient, RowChanges changes, Compute<T>* sums,
                          Compute<T>* sums_of_sums) {
  using C = Compute<T>;
  const int64 elements = changes.elements;
  const int64 first = int64(blockIdx.x) * kChunk * kChunks;
  const int groups = blockDim.x / changes.lanes, lane = threadIdx.x % changes.lanes;
  for (int chunk = threadIdx.x / changes.lanes; chunk < kChunks; chunk += groups) {
    const int64 begin = first + chunk * kChunk;
    if (!changes.AreOfOneRow(begin, kChunk) || changes.rows[begin] >= changes.num_rows) continue;
    for (int64 k = lane; k < elements; k += changes.lanes) {
      C sum = C(0);
#pragma unroll 8
      for (int i = 0; i < kChunk; ++i)
        sum += Load(gradient, int64(changes.positions[begin + i]) * elements + k);
      sums[begin / kChunk * elements + k] = sum;
    }
  }
  __syncthreads();
  if (!changes.AreOfOneRow(first, kChunk * kChunks) || changes.rows[first] >= changes.num_rows)
    return;
  for (int64 k = threadIdx.x; k < elements; k += blockDim.x) {
    C sum = C(0);
#pragma unroll 8
    for (int i = 0; i < kChunks; ++i) sum += sums[(first / kChunk + i) * elements + k];
    sums_of_sums[blockIdx.x * elements + k] = sum;
  }
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

// A group of threads for each place in the order; that of a row's first occurrence does the work.
template <typename F, typename T>
__global__ void ApplyRuns(ApplyArguments<T> a, RowChanges changes, const Compute<T>* sums,
                          const Compute<T>* sums_of_sums) {
  using C = Compute<T>;
  const Hyper<C> h = a.template HyperOf<F>();
  const int64 lanes = changes.lanes, elements = changes.elements;
  const int64 thread = int64(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64 groups = int64(gridDim.x) * blockDim.x / lanes;
  for (int64 begin = thread / lanes; begin < changes.count; begin += groups) {
    const uint32 row = changes.rows[begin];
    if (row >= changes.num_rows || (begin > 0 && changes.rows[begin - 1] == row)) continue;
    for (int64 k = thread % lanes; k < elements; k += lanes * kColumns) {
      C var[kColumns], slots[kColumns][3], g[kColumns];
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        const int64 column = k + c * lanes, at = int64(row) * elements + column;
        g[c] = C(0);
        if (column >= elements) continue;
        var[c] = Load(a.var, at);
#pragma unroll
        for (int s = 0; s < F::kSlots; ++s) slots[c][s] = Load(a.slots[s], at);
      }
      if (changes.sums) {
        SumRun(a.gradient, changes, begin, k, sums, sums_of_sums, g);
#pragma unroll
        for (int c = 0; c < kColumns; ++c)
          if (k + c * lanes < elements) F::Run(h, Rounded<T>(g[c]), var[c], slots[c]);
      } else {
        for (int64 i = begin; i < changes.count && changes.rows[i] == row; ++i) {
          const T* const from = a.gradient + int64(changes.positions[i]) * elements;
#pragma unroll
          for (int c = 0; c < kColumns; ++c) {
            const int64 column = k + c * lanes;
            if (column >= elements) continue;
            F::Run(h, Load(from, column), var[c], slots[c]);
            var[c] = Rounded<T>(var[c]);
#pragma unroll
            for (int s = 0; s < F::kSlots; ++s) slots[c][s] = Rounded<T>(slots[c][s]);
          }
        }
      }
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        const int64 column = k + c * lanes, at = int64(row) * elements + column;
        if (column >= elements) continue;
        Store(a.var, at, var[c]);
#pragma unroll
        for (int s = 0; s < F::kSlots; ++s) Store(a.slots[s], at, slots[c][s]);
      }
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

template <typename F, typename T>
__global__ void ApplyFew(ApplyArguments<T> a, FewRows few) {
  using C = Compute<T>;
  __shared__ uint32 found[kMostFew];
  __shared__ C parts[kFewThreads];
  const int occurrences = FindOccurrences(few, found);
  if (occurrences == 0) return;
  const int lanes = few.lanes, groups = kFewThreads / lanes;
  const int lane = threadIdx.x % lanes, group = threadIdx.x / lanes;
  const int64 elements = few.elements, row = few[blockIdx.x];
  const Hyper<C> h = a.template HyperOf<F>();
  for (int64 first = 0; first < elements; first += lanes) {
    const int64 column = first + lane, at = row * elements + column;
    if (few.sums) {
      C sum = C(0);
      if (column < elements) {
#pragma unroll 8
        for (int i = group; i < occurrences; i += groups)
          sum += Load(a.gradient, int64(found[i]) * elements + column);
      }
      __syncthreads();
      parts[threadIdx.x] = sum;
      __syncthreads();
    }
    if (group > 0 || column >= elements) continue;
    C var = Load(a.var, at), slots[3];
#pragma unroll
    for (int s = 0; s < F::kSlots; ++s) slots[s] = Load(a.slots[s], at);
    if (few.sums) {
      C sum = parts[lane];
      for (int g = 1; g < groups && g < occurrences; ++g) sum += parts[g * lanes + lane];
      F::Run(h, Rounded<T>(sum), var, slots);
    } else {
      for (int i = 0; i < occurrences; ++i) {
        F::Run(h, Load(a.gradient, int64(found[i]) * elements + column), var, slots);
        var = Rounded<T>(var);
#pragma unroll
        for (int s = 0; s < F::kSlots; ++s) slots[s] = Rounded<T>(slots[s]);
      }
    }
    Store(a.var, at, var);
#pragma unroll
    for (int s = 0; s < F::kSlots; ++s) Store(a.slots[s], at, slots[s]);
  }
}
