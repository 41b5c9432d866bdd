#include "muster/ops/indexing/moving.cuh"
#include "muster/ops/indexing/scatter.cuh"

// Rows of y are changed by those of v; negative numbers count from the end, and what is out of
// range is ignored.
template <typename How, typename T>
__global__ void Inplace(const int32* numbers, const T* v, T* y, int64 rows, int64 height,
                        int64 inner) {
  FOR_EACH_ROW(i, rows) {
    const int64 given = numbers[i];
    const int64 row = given < 0 ? given + height : given;
    if (row < 0 || row >= height) continue;
    FOR_EACH_COLUMN(k, inner) How::Apply(y + row * inner + k, v[i * inner + k]);
  }
}
