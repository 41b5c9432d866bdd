// Cross products of vectors of three elements.
#include "muster/ops/gpu.cuh"

template <typename T>
__global__ void Cross(const T* a, const T* b, T* y, int64 count) {
  using C = typename UnsignedOf<Compute<T>>::type;
  FOR_EACH_ELEMENT(vector, count) {
    C u[3], v[3];
#pragma unroll
    for (int k = 0; k < 3; ++k) {
      u[k] = C(Load(a, 3 * vector + k));
      v[k] = C(Load(b, 3 * vector + k));
    }
#pragma unroll
    for (int k = 0; k < 3; ++k) {
      const int n = (k + 1) % 3, m = (k + 2) % 3;
      Store(y, 3 * vector + k, u[n] * v[m] - u[m] * v[n]);
    }
  }
}
