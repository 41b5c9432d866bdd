#include "muster/ops/gpu.cuh"

// What an inverse transform lacks.
template <typename R>
__global__ void ScaleNumbers(R* numbers, R factor, int64 count) {
  FOR_EACH_ELEMENT(i, count) numbers[i] *= factor;
}
