#include "muster/ops/gpu.cuh"

// found[0] becomes 1 where there are infinities, found[1] where there are values that are not
// numbers.
template <typename T>
__global__ void FindUnusual(const T* values, int64 count, int32* found) {
  FOR_EACH_ELEMENT(i, count) {
    const Compute<T> value = Load(values, i);
    if (value != value) {
      found[1] = 1;
    } else if (value - value != Compute<T>(0)) {
      found[0] = 1;
    }
  }
}
