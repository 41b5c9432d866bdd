// Optimizers that change single rows. Where a row occurs several times, either its gradients are
// summed first, in a fixed order, and the formula runs once, or it runs for each occurrence, one
// after the other.
#include "muster/ops/state/formulas.cuh"
#include "muster/ops/state/row_changes.cuh"

// A group of threads for each place in the order; that of a row's first occurrence does the work.
template <typename F, typename T>
__global__ void ApplyRuns(ApplyArguments<T> a, RowChanges changes, const Compute<T>* sums,
                          const Compute<T>* sums_of_sums) {
  using C = Compute<T>;
  const Hyper<C> h = a.template HyperOf<F>();
  const int64 lanes = changes.lanes, elements = changes.elements;
  const int64 thread = int64(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64 groups = int64(gridDim.x) * blockDim.x / lanes;
  for (int64 begin = thread / lanes; begin < changes.count; begin += groups) {
    const uint32 row = changes.rows[begin];
    if (row >= changes.num_rows || (begin > 0 && changes.rows[begin - 1] == row)) continue;
    for (int64 k = thread % lanes; k < elements; k += lanes * kColumns) {
      C var[kColumns], slots[kColumns][3], g[kColumns];
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        const int64 column = k + c * lanes, at = int64(row) * elements + column;
        g[c] = C(0);
        if (column >= elements) continue;
        var[c] = Load(a.var, at);
#pragma unroll
        for (int s = 0; s < F::kSlots; ++s) slots[c][s] = Load(a.slots[s], at);
      }
      if (changes.sums) {
        SumRun(a.gradient, changes, begin, k, sums, sums_of_sums, g);
#pragma unroll
        for (int c = 0; c < kColumns; ++c)
          if (k + c * lanes < elements) F::Run(h, Rounded<T>(g[c]), var[c], slots[c]);
      } else {
        for (int64 i = begin; i < changes.count && changes.rows[i] == row; ++i) {
          const T* const from = a.gradient + int64(changes.positions[i]) * elements;
#pragma unroll
          for (int c = 0; c < kColumns; ++c) {
            const int64 column = k + c * lanes;
            if (column >= elements) continue;
            F::Run(h, Load(from, column), var[c], slots[c]);
            var[c] = Rounded<T>(var[c]);
#pragma unroll
            for (int s = 0; s < F::kSlots; ++s) slots[c][s] = Rounded<T>(slots[c][s]);
          }
        }
      }
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        const int64 column = k + c * lanes, at = int64(row) * elements + column;
        if (column >= elements) continue;
        Store(a.var, at, var[c]);
#pragma unroll
        for (int s = 0; s < F::kSlots; ++s) Store(a.slots[s], at, slots[c][s]);
      }
    }
  }
}

template <typename F, typename T>
__device__ __forceinline__ void ApplyToFew(const ApplyArguments<T>& a, const FewRows& few) {
  using C = Compute<T>;
  __shared__ uint32 found[kMostFew];
  __shared__ C parts[kFewThreads];
  const int occurrences = FindOccurrences(few, found);
  if (occurrences == 0) return;
  const int lane = threadIdx.x % few.lanes;
  const int64 elements = few.elements, row = few[blockIdx.x];
  const Hyper<C> h = a.template HyperOf<F>();
  for (int64 first = 0; first < elements; first += few.lanes) {
    const int64 column = first + lane, at = row * elements + column;
    C sum = C(0);
    if (few.sums) sum = SumFound(a.gradient, few, found, occurrences, column, parts);
    if (threadIdx.x >= few.lanes || column >= elements) continue;
    C var = Load(a.var, at), slots[3];
#pragma unroll
    for (int s = 0; s < F::kSlots; ++s) slots[s] = Load(a.slots[s], at);
    if (few.sums) {
      F::Run(h, Rounded<T>(sum), var, slots);
    } else {
      for (int i = 0; i < occurrences; ++i) {
        F::Run(h, Load(a.gradient, int64(found[i]) * elements + column), var, slots);
        var = Rounded<T>(var);
#pragma unroll
        for (int s = 0; s < F::kSlots; ++s) slots[s] = Rounded<T>(slots[s]);
      }
    }
    Store(a.var, at, var);
#pragma unroll
    for (int s = 0; s < F::kSlots; ++s) Store(a.slots[s], at, slots[s]);
  }
}
template <typename F, typename T>
__global__ void ApplyFew(ApplyArguments<T> a, FewRows few) {
  ApplyToFew<F>(a, few);
}

// Several of them (ops/fusion/bundles.cc); blockIdx.z says which.
template <typename T>
struct FewList {
  static constexpr int kMost = 20;
  struct {
    ApplyArguments<T> arguments;
    FewRows few;
  } list[kMost];
};
template <typename F, typename T>
__global__ void ApplyFews(FewList<T> updates) {
  const auto& each = updates.list[blockIdx.z];
  ApplyToFew<F>(each.arguments, each.few);
}
