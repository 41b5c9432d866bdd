#include "muster/ops/gpu.cuh"

// As sparse_segment_gpu.cc has it.
struct SparseSegments {
  const void* indices;
  const void* ids;
  int64 count;     // of both
  int64 rows;      // that are picked from, or added to
  int64 segments;
  int64 elements;  // of a row
  int32 has_wide_indices, has_wide_ids;
  int32 how;  // 0: sums, 1: means, 2: divided by the root of the count
  int32 unused;

  __device__ __forceinline__ int64 Index(int64 i) const {
    return has_wide_indices ? static_cast<const int64*>(indices)[i]
                            : static_cast<const int32*>(indices)[i];
  }
  __device__ __forceinline__ int64 Id(int64 i) const {
    return has_wide_ids ? static_cast<const int64*>(ids)[i] : static_cast<const int32*>(ids)[i];
  }
  // The first place whose id is not less; ids are sorted.
  __device__ __forceinline__ int64 BeginOf(int64 segment) const {
    int64 low = 0, high = count;
    while (low < high) {
      const int64 middle = low + (high - low) / 2;
      if (Id(middle) < segment)
        low = middle + 1;
      else
        high = middle;
    }
    return low;
  }
  template <typename C>
  __device__ __forceinline__ C Scale(int64 size) const {
    return how == 0 ? C(1) : how == 1 ? C(1.0 / double(size)) : C(1.0 / sqrt(double(size)));
  }
};

// Rows that do not exist count as zeros.
template <typename T>
__global__ void ReduceSegments(const T* data, T* out, SparseSegments s) {
  using C = Compute<T>;
  FOR_EACH_ELEMENT(i, s.segments * s.elements) {
    const int64 segment = i / s.elements, column = i % s.elements;
    const int64 begin = s.BeginOf(segment);
    C sum = C(0);
    int64 end = begin;
    for (; end < s.count && s.Id(end) == segment; ++end) {
      const int64 row = s.Index(end);
      if (row >= 0 && row < s.rows) sum += Load(data, row * s.elements + column);
    }
    Store(out, i, end == begin ? C(0) : sum * s.template Scale<C>(end - begin));
  }
}

// sums[index of i] += scaled gradient[segment of i].
template <typename T>
__global__ void AddSegmentGradients(const T* gradient, Compute<T>* sums, SparseSegments s) {
  using C = Compute<T>;
  FOR_EACH_ELEMENT(k, s.count * s.elements) {
    const int64 i = k / s.elements, column = k % s.elements;
    const int64 row = s.Index(i), segment = s.Id(i);
    if (row < 0 || row >= s.rows || segment < 0 || segment >= s.segments) continue;
    C value = Load(gradient, segment * s.elements + column);
    if (s.how != 0) value *= s.template Scale<C>(s.BeginOf(segment + 1) - s.BeginOf(segment));
    AtomicAdd(sums + row * s.elements + column, value);
  }
}
