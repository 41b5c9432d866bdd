// Nodes of activations and of their gradients.
#include "muster/ops/nn/activations.cuh"
#include "muster/ops/nn/packs.cuh"

// alpha is rounded to the type of the elements, as in TensorFlow.
template <typename F, typename T>
__global__ void Activate(const T* x, T* y, int64 count, float alpha) {
  using C = Compute<T>;
  const C slope = C(T(alpha));
  MapElements(count, y, [=](int64, C value) { return F::template Apply<T>(value, slope); }, x);
}
template <typename F, typename T>
__global__ void ActivateGrad(const T* dy, const T* x, T* dx, int64 count, float alpha) {
  using C = Compute<T>;
  const C slope = C(T(alpha));
  MapElements(count, dx, [=](int64, C d, C value) { return F::template Apply<T>(d, value, slope); },
              dy, x);
}
