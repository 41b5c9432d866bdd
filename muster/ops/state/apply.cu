#include "muster/ops/state/formulas.cuh"

// Every `step`-th element from `first` on.
template <typename F, typename T>
__device__ __forceinline__ void ApplyFrom(const ApplyArguments<T>& a, int64 first, int64 step) {
  using C = Compute<T>;
  const Hyper<C> h = a.template HyperOf<F>();
  for (int64 i = first; i < a.count; i += step) {
    C var = Load(a.var, i), slots[3];
#pragma unroll
    for (int s = 0; s < F::kSlots; ++s) slots[s] = Load(a.slots[s], i);
    F::Run(h, Load(a.gradient, i), var, slots);
    Store(a.var, i, var);
#pragma unroll
    for (int s = 0; s < F::kSlots; ++s) Store(a.slots[s], i, slots[s]);
  }
}

template <typename F, typename T>
__global__ void Apply(ApplyArguments<T> a) {
  ApplyFrom<F>(a, int64(blockIdx.x) * blockDim.x + threadIdx.x, int64(gridDim.x) * blockDim.x);
}

// Several updates of one kind (ops/fusion/joined_updates.cc): each has blocks of its own.
template <typename T>
struct JoinedUpdates {
  static constexpr int kMost = 24;
  ApplyArguments<T> each[kMost];
  int32 end_block[kMost];
};
template <typename F, typename T>
__global__ void ApplyJoined(JoinedUpdates<T> updates) {
  int k = 0, begin = 0;
  while (int(blockIdx.x) >= updates.end_block[k]) begin = updates.end_block[k++];
  ApplyFrom<F>(updates.each[k], int64(blockIdx.x - begin) * blockDim.x + threadIdx.x,
               int64(updates.end_block[k] - begin) * blockDim.x);
}
