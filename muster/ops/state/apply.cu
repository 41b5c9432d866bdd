#include "muster/ops/nn/packs.cuh"
#include "muster/ops/state/formulas.cuh"

// `wide` elements from i on: all are loaded before any is stored.
template <typename F, int wide, typename T>
__device__ __forceinline__ void ApplyTo(const ApplyArguments<T>& a, const Hyper<Compute<T>>& h,
                                        int64 i) {
  using C = Compute<T>;
  using Wide = Pack<T, wide>;
  Wide vars = *reinterpret_cast<const Wide*>(a.var + i), slots[3];
#pragma unroll
  for (int s = 0; s < F::kSlots; ++s) slots[s] = *reinterpret_cast<const Wide*>(a.slots[s] + i);
  const Wide gradients = *reinterpret_cast<const Wide*>(a.gradient + i);
#pragma unroll
  for (int k = 0; k < wide; ++k) {
    C var = Load(vars.at, k), own[3];
#pragma unroll
    for (int s = 0; s < F::kSlots; ++s) own[s] = Load(slots[s].at, k);
    F::Run(h, Load(gradients.at, k), var, own);
    Store(vars.at, k, var);
#pragma unroll
    for (int s = 0; s < F::kSlots; ++s) Store(slots[s].at, k, own[s]);
  }
  *reinterpret_cast<Wide*>(a.var + i) = vars;
#pragma unroll
  for (int s = 0; s < F::kSlots; ++s) *reinterpret_cast<Wide*>(a.slots[s] + i) = slots[s];
}

// Every `step`-th pack from `first` on, or every such element where something is not aligned.
template <typename F, typename T>
__device__ __forceinline__ void ApplyFrom(const ApplyArguments<T>& a, int64 first, int64 step) {
  constexpr int kSize = 16 / sizeof(T);
  const Hyper<Compute<T>> h = a.template HyperOf<F>();
  bool aligned = IsAligned(a.var) && IsAligned(a.gradient);
#pragma unroll
  for (int s = 0; s < F::kSlots; ++s) aligned = aligned && IsAligned(a.slots[s]);
  const int64 packs = aligned ? a.count / kSize : 0;
  for (int64 pack = first; pack < packs; pack += step) ApplyTo<F, kSize>(a, h, pack * kSize);
  for (int64 i = packs * kSize + first; i < a.count; i += step) ApplyTo<F, 1>(a, h, i);
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
__global__ void ApplyJoined(const __grid_constant__ JoinedUpdates<T> updates) {
  int k = 0, begin = 0;
  while (int(blockIdx.x) >= updates.end_block[k]) begin = updates.end_block[k++];
  ApplyFrom<F>(updates.each[k], int64(blockIdx.x - begin) * blockDim.x + threadIdx.x,
               int64(updates.end_block[k] - begin) * blockDim.x);
}
