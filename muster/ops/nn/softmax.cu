// Softmax and its logarithm over rows.
#include "muster/ops/nn/rows.cuh"

template <typename T, bool kLog, int kThreads>
__global__ void Softmax(const T* x, T* y, int64 rows, int64 size) {
  using C = Compute<T>;
  FOR_EACH_ROW(row, rows) {
    const RowElements<T, kThreads> logits(x + row * size, size);
    const LogitSums<C> sums = SumLogits(logits);
    T* const to = y + row * size;
    if constexpr (kLog) {
      const C log_sum = log(sums.sum);
      logits.ForEach([=](int64 i, C value) { Store(to, i, (value - sums.largest) - log_sum); });
    } else {
      const C scale = C(1) / sums.sum;
      logits.ForEach([=](int64 i, C value) { Store(to, i, exp(value - sums.largest) * scale); });
    }
  }
}
