#include "muster/ops/indexing/moving.cuh"

// Zeros for tuples that are out of range.
template <typename E, typename Index>
__global__ void GatherNd(const E* params, const Index* indices, E* out, TupleAxes axes, int64 rows,
                         int64 inner) {
  FOR_EACH_ROW(row, rows) {
    const int64 slice = SliceOf(axes, indices + row * axes.depth);
    FOR_EACH_COLUMN(k, inner) out[row * inner + k] = slice < 0 ? E{} : params[slice * inner + k];
  }
}
