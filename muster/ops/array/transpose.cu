#include "muster/ops/gpu.cuh"

template <typename T>
__global__ void Conjugate(T* values, int64 count) {
  FOR_EACH_ELEMENT(i, count) values[i].im = -values[i].im;
}
