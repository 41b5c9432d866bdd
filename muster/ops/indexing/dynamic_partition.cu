#include "muster/ops/indexing/moving.cuh"
#include "muster/ops/indexing/scan.cuh"

// Rows are dealt out in their order: a thread deals with a stretch of neighbours. counts is
// [partitions, stretches].
struct Stretches {
  int64 rows, length, count;
  int64 partitions;
};

__global__ void CountRows(const int32* partitions, int64* counts, Stretches stretches) {
  FOR_EACH_ELEMENT(s, stretches.count) {
    for (int64 row = s * stretches.length;
         row < (s + 1) * stretches.length && row < stretches.rows; ++row) {
      const int64 partition = partitions[row];
      if (partition >= 0 && partition < stretches.partitions)
        ++counts[partition * stretches.count + s];
    }
  }
}

// counts become where rows begin in the order of partitions; starts those of whole partitions.
__global__ void SumRows(int64* counts, int64* starts, Stretches stretches) {
  ScanCounts(counts, stretches.partitions * stretches.count);
  __syncthreads();
  for (int64 p = threadIdx.x; p <= stretches.partitions; p += blockDim.x)
    starts[p] = counts[p * stretches.count];
}

// order[i] is the row at place i.
__global__ void OrderRows(const int32* partitions, int64* counts, int64* order,
                          Stretches stretches) {
  FOR_EACH_ELEMENT(s, stretches.count) {
    for (int64 row = s * stretches.length;
         row < (s + 1) * stretches.length && row < stretches.rows; ++row) {
      const int64 partition = partitions[row];
      if (partition >= 0 && partition < stretches.partitions)
        order[counts[partition * stretches.count + s]++] = row;
    }
  }
}

// Row i of out is at from[i]; zeros where there is none.
template <typename E>
__global__ void Stitch(const uint64* from, E* out, int64 rows, int64 inner) {
  FOR_EACH_ROW(row, rows) {
    const E* const values = reinterpret_cast<const E*>(from[row]);
    FOR_EACH_COLUMN(k, inner) out[row * inner + k] = values == nullptr ? E{} : values[k];
  }
}
