// Cross entropy of logits and labels, and its gradient.
#include "muster/ops/nn/rows.cuh"

// How to walk through an argument that is broadcast to [rows, classes].
struct Strides {
  int64 row;
  int64 column;
};

template <typename T, int kThreads>
__global__ void DenseCrossEntropy(const T* logits, Strides of_logits, const T* labels,
                                  Strides of_labels, T* losses, T* backprop, int64 rows,
                                  int64 size, double factor) {
  using C = Compute<T>;
  FOR_EACH_ROW(row, rows) {
    const RowElements<T, kThreads> x(logits + row * of_logits.row, size, of_logits.column);
    const LogitSums<C> sums = SumLogits(x);
    const C log_sum = log(sums.sum);
    const C scale = C(1) / sums.sum;
    const T* const p = labels + row * of_labels.row;
    T* const to = backprop + row * size;
    C total = 0;
    x.ForEach([&](int64 i, C value) {
      const C label = Load(p, i * of_labels.column);
      const C centred = value - sums.largest;
      // A label of zero adds nothing, even where its logarithm is infinite.
      if (label != C(0)) total += label * (log_sum - centred);
      Store(to, i, C(T(exp(centred) * scale - label)) * C(factor));
    });
    total = ReduceRow<Plus, kThreads>(total);
    if (threadIdx.x % kThreads == 0) Store(losses, row, total);
  }
}

// Labels outside of the classes give NaN. `factor` is one, or what a rewrite found behind the op.
template <typename T, typename Label, int kThreads>
__global__ void SparseCrossEntropy(const T* logits, const Label* labels, T* losses, T* backprop,
                                   int64 rows, int64 size, double factor) {
  using C = Compute<T>;
  FOR_EACH_ROW(row, rows) {
    const T* const from = logits + row * size;
    const RowElements<T, kThreads> x(from, size);
    const LogitSums<C> sums = SumLogits(x);
    const C scale = C(1) / sums.sum;
    const int64 label = labels[row];
    const C bad = label >= 0 && label < size ? C(0) : Infinity<C>() - Infinity<C>();
    T* const to = backprop + row * size;
    x.ForEach([&](int64 i, C value) {
      const C gradient = exp(value - sums.largest) * scale - C(i == label) + bad;
      Store(to, i, C(T(gradient)) * C(factor));
    });
    if (threadIdx.x % kThreads == 0) {
      Store(losses, row,
            bad == C(0) ? log(sums.sum) - (Load(from, label) - sums.largest) : bad);
    }
  }
}
