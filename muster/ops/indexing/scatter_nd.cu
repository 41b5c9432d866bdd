#include "muster/ops/indexing/moving.cuh"
#include "muster/ops/indexing/scatter.cuh"

// Nothing for tuples that are out of range.
template <typename How, typename T, typename Index>
__global__ void ScatterNd(const Index* indices, const T* updates, T* out, TupleAxes axes,
                          int64 rows, int64 inner) {
  FOR_EACH_ROW(row, rows) {
    const int64 slice = SliceOf(axes, indices + row * axes.depth);
    if (slice < 0) continue;
    FOR_EACH_COLUMN(k, inner) How::Apply(out + slice * inner + k, updates[row * inner + k]);
  }
}
