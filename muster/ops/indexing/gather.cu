#include "muster/ops/indexing/moving.cuh"

// params is [batch, outer, rows, inner], indices [batch, n], the result [batch, outer, n, inner].
struct GatherSizes {
  int64 batch, outer, rows, inner, indices;
};

// Zeros for indices that are out of range.
template <typename E, typename Index>
__global__ void Gather(const E* params, const Index* indices, E* out, GatherSizes sizes) {
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
