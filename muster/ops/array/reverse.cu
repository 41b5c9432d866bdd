#include "muster/ops/indexing/moving.cuh"

// The tensor as [outer, first, middle, second, inner]; one of first and second is the batch, the
// other the sequence.
struct SequenceSizes {
  int64 outer, first, middle, second, inner;
  bool batch_is_first;
};

// Lengths that are out of range count as the nearest that is not.
template <typename E, typename Length>
__global__ void ReverseSequence(const E* x, const Length* lengths, E* y, SequenceSizes sizes) {
  FOR_EACH_ROW(row, sizes.outer * sizes.first * sizes.middle * sizes.second) {
    const int64 above = row / sizes.second, second = row - above * sizes.second;
    const int64 first = above / sizes.middle % sizes.first;
    const int64 at = sizes.batch_is_first ? second : first;
    const int64 most = sizes.batch_is_first ? sizes.second : sizes.first;
    const int64 stride = sizes.batch_is_first ? 1 : sizes.middle * sizes.second;
    int64 length = lengths[sizes.batch_is_first ? first : second];
    if (length > most) length = most;
    const int64 from = at < length ? row + (length - 1 - 2 * at) * stride : row;
    FOR_EACH_COLUMN(k, sizes.inner) y[row * sizes.inner + k] = x[from * sizes.inner + k];
  }
}
