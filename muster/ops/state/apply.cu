#include "muster/ops/state/formulas.cuh"

template <typename F, typename T>
__global__ void Apply(ApplyArguments<T> a) {
  using C = Compute<T>;
  const Hyper<C> h = a.template HyperOf<F>();
  FOR_EACH_ELEMENT(i, a.count) {
    C var = Load(a.var, i), slots[3];
#pragma unroll
    for (int s = 0; s < F::kSlots; ++s) slots[s] = Load(a.slots[s], i);
    F::Run(h, Load(a.gradient, i), var, slots);
    Store(a.var, i, var);
#pragma unroll
    for (int s = 0; s < F::kSlots; ++s) Store(a.slots[s], i, slots[s]);
  }
}
