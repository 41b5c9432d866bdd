#include "muster/ops/indexing/moving.cuh"
#include "muster/ops/indexing/scan.cuh"

// A thread looks at so many neighbours, a block at a chunk.
constexpr int kPerThread = 8;
constexpr int kChunk = kPerThread * kScanThreads;

template <typename T>
__device__ __forceinline__ bool IsSet(T value) {
  if constexpr (kIsComplex<T>) {
    return value.re != 0 || value.im != 0;
  } else {
    return Compute<T>(value) != Compute<T>(0);
  }
}

// How many elements of each chunk are set.
template <typename T>
__global__ void CountSet(const T* values, int64 count, int64* counts, int64 chunks) {
  for (int64 chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
    const int64 first = chunk * kChunk;
    int found = 0, total = 0;
    for (int k = 0; k < kPerThread; ++k) {
      const int64 i = first + k * kScanThreads + threadIdx.x;
      if (i < count) found += IsSet(values[i]);
    }
    ScanBlock(found, total);
    if (threadIdx.x == 0) counts[chunk] = total;
  }
}

__global__ void SumCounts(int64* counts, int64 chunks) {
  ScanCounts(counts, chunks);
}

// The positions of what is set, [found, rank], in order.
template <typename T>
__global__ void WritePositions(const T* values, int64 count, const int64* starts, int64 chunks,
                               TupleAxes axes, int64* out) {
  for (int64 chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
    const int64 first = chunk * kChunk + threadIdx.x * kPerThread;
    int found = 0, total = 0;
    for (int64 i = first; i < first + kPerThread && i < count; ++i) found += IsSet(values[i]);
    int64 row = starts[chunk] + ScanBlock(found, total) - found;
    for (int64 i = first; i < first + kPerThread && i < count; ++i) {
      if (!IsSet(values[i])) continue;
      int64 rest = i;
      for (int d = axes.depth - 1; d >= 0; --d) {
        out[row * axes.depth + d] = rest % axes.sizes[d];
        rest /= axes.sizes[d];
      }
      ++row;
    }
  }
}
