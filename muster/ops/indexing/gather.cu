#include "muster/ops/indexing/moving.cuh"

// params is [batch, outer, rows, inner], indices [batch, n], the result [batch, outer, n, inner].
struct GatherSizes {
  int64 batch, outer, rows, inner, indices;
};

// Zeros for indices that are out of range.
template <typename E, typename Index>
__device__ __forceinline__ void GatherRows(const E* params, const Index* indices, E* out,
                                           const GatherSizes& sizes) {
  const int64 slices = sizes.batch * sizes.outer;
  FOR_EACH_ROW(row, slices * sizes.indices) {
    const int64 slice = slices == 1 ? 0 : row / sizes.indices;
    const int64 batch = sizes.batch == 1 ? 0 : slice / sizes.outer;
    const int64 index = indices[batch * sizes.indices + row - slice * sizes.indices];
    const bool exists = index >= 0 && index < sizes.rows;
    const E* const from = params + (slice * sizes.rows + index) * sizes.inner;
    FOR_EACH_COLUMN(k, sizes.inner) out[row * sizes.inner + k] = exists ? from[k] : E{};
  }
}

template <typename E, typename Index>
__global__ void Gather(const E* params, const Index* indices, E* out, GatherSizes sizes) {
  GatherRows(params, indices, out, sizes);
}

// Several of them (ops/fusion/bundles.cc); blockIdx.z says which.
template <typename E, typename Index>
struct GatherList {
  static constexpr int kMost = 32;
  struct {
    const E* params;
    const Index* indices;
    E* out;
    GatherSizes sizes;
  } list[kMost];
};
template <typename E, typename Index>
__global__ void Gathers(GatherList<E, Index> gathers) {
  const auto& each = gathers.list[blockIdx.z];
  GatherRows(each.params, each.indices, each.out, each.sizes);
}
