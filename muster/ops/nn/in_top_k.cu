// Whether the target class is among the k most probable.
#include "muster/ops/nn/rows.cuh"

// Ties count as in; nothing can be said about rows with values that are not finite.
template <typename Index, int kThreads>
__global__ void InTopK(const float* predictions, const Index* targets, const Index* k, bool* result,
                       int64 rows, int64 classes) {
  FOR_EACH_ROW(row, rows) {
    const float* const own = predictions + row * classes;
    const int64 target = targets[row];
    const bool is_class = target >= 0 && target < classes;
    const float wanted = is_class ? own[target] : 0.0f;
    int32 larger = 0;
    int32 bad = is_class ? 0 : 1;
    for (int64 i = int(threadIdx.x) % kThreads; i < classes; i += kThreads) {
      const float value = own[i];
      if (!(fabs(value) <= Highest<float>())) bad = 1;
      if (value > wanted) ++larger;
    }
    larger = ReduceRow<Plus, kThreads>(larger);
    bad = ReduceRow<Plus, kThreads>(bad);
    if (threadIdx.x % kThreads == 0) result[row] = bad == 0 && larger < int64(*k);
  }
}
