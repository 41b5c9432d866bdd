#include "muster/ops/state/row_changes.cuh"

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

// The place of a row's first occurrence gets its number and the sum of its gradients, all others get
// -1 and zeros.
struct SummedRows {
  void* sums;
  void* rows;
  __device__ __forceinline__ void SetRow(int64 at, int64 row, bool is_wide) const {
    if (is_wide)
      static_cast<int64*>(rows)[at] = row;
    else
      static_cast<int32*>(rows)[at] = int32(row);
  }
};

template <typename T>
__global__ void SumOrdered(const T* gradient, RowChanges changes, const Compute<T>* sums,
                           const Compute<T>* sums_of_sums, SummedRows out, int32 is_wide) {
  using C = Compute<T>;
  const int64 lanes = changes.lanes, elements = changes.elements;
  const int64 thread = int64(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64 groups = int64(gridDim.x) * blockDim.x / lanes;
  for (int64 begin = thread / lanes; begin < changes.count; begin += groups) {
    const uint32 row = changes.rows[begin];
    const bool is_first = row < changes.num_rows && (begin == 0 || changes.rows[begin - 1] != row);
    const int64 at = changes.positions[begin];
    if (thread % lanes == 0) out.SetRow(at, is_first ? int64(row) : -1, is_wide);
    for (int64 k = thread % lanes; k < elements; k += lanes * kColumns) {
      C sum[kColumns];
#pragma unroll
      for (int c = 0; c < kColumns; ++c) sum[c] = C(0);
      if (is_first) SumRun(gradient, changes, begin, k, sums, sums_of_sums, sum);
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        const int64 column = k + c * lanes;
        if (column < elements) Store(static_cast<T*>(out.sums), at * elements + column, sum[c]);
      }
    }
  }
}

template <typename T>
__global__ void SumFew(const T* gradient, FewRows few, SummedRows out) {
  using C = Compute<T>;
  __shared__ uint32 found[kMostFew];
  __shared__ C parts[kFewThreads];
  const int occurrences = FindOccurrences(few, found);
  if (threadIdx.x == 0)
    out.SetRow(blockIdx.x, occurrences > 0 ? few[blockIdx.x] : -1, few.has_wide_indices);
  for (int64 first = 0; first < few.elements; first += few.lanes) {
    const int64 column = first + threadIdx.x % few.lanes;
    const C sum = SumFound(gradient, few, found, occurrences, column, parts);
    if (threadIdx.x < few.lanes && column < few.elements)
      Store(static_cast<T*>(out.sums), int64(blockIdx.x) * few.elements + column, sum);
  }
}
