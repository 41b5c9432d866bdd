#include "muster/ops/indexing/moving.cuh"

// out is [outer, depth, inner], of the elements at `on` where the index at [outer, inner] says so.
template <typename E, typename Index>
__global__ void OneHot(const Index* indices, const E* on, const E* off, E* out, int64 outer,
                       int64 depth, int64 inner) {
  const E set = *on, unset = *off;
  if (inner == 1) {
    FOR_EACH_ROW(o, outer) {
      const int64 index = indices[o];
      FOR_EACH_COLUMN(d, depth) out[o * depth + d] = index == d ? set : unset;
    }
    return;
  }
  FOR_EACH_ROW(row, outer * depth) {
    const int64 o = row / depth, d = row - o * depth;
    FOR_EACH_COLUMN(k, inner) {
      out[row * inner + k] = int64(indices[o * inner + k]) == d ? set : unset;
    }
  }
}
