// Local response normalisation across neighbouring channels, and its gradient.
#include "muster/ops/gpu.cuh"

struct Lrn {
  int64 depth;
  int64 radius;
  float bias, alpha;
  double beta;

  __device__ __forceinline__ int64 Begin(int64 i) const { return i < radius ? 0 : i - radius; }
  __device__ __forceinline__ int64 End(int64 i) const {
    return i + radius + 1 < depth ? i + radius + 1 : depth;
  }
  // bias + alpha * the sum of squares around channel i of a cell.
  template <typename T>
  __device__ __forceinline__ float Norm(const T* cell, int64 i) const {
    float sum = 0;
    for (int64 k = Begin(i); k < End(i); ++k) {
      const float x = Load(cell, k);
      sum += x * x;
    }
    return bias + alpha * sum;
  }
  __device__ __forceinline__ float Power(float norm) const {
    if (beta == 1.0) return 1.0f / norm;
    if (beta == 0.5) return 1.0f / sqrt(norm);
    return pow(norm, -float(beta));
  }
};

template <typename T>
__global__ void Normalise(const T* x, T* y, int64 count, Lrn lrn) {
  FOR_EACH_ELEMENT(i, count) {
    const int64 channel = i % lrn.depth;
    Store(y, i, Load(x, i) * lrn.Power(lrn.Norm(x + (i - channel), channel)));
  }
}

// ratios[i] = dy[i] * y[i] / norm[i]: what an element adds to the gradients around it.
template <typename T>
__global__ void Ratios(const T* dy, const T* x, const T* y, float* ratios, int64 count, Lrn lrn) {
  FOR_EACH_ELEMENT(i, count) {
    const int64 channel = i % lrn.depth;
    ratios[i] = Load(dy, i) * Load(y, i) / lrn.Norm(x + (i - channel), channel);
  }
}
template <typename T>
__global__ void NormaliseGrad(const T* dy, const T* x, const float* ratios, T* dx, int64 count,
                              Lrn lrn) {
  FOR_EACH_ELEMENT(i, count) {
    const int64 channel = i % lrn.depth, cell = i - channel;
    float sum = 0;
    for (int64 k = lrn.Begin(channel); k < lrn.End(channel); ++k) sum += ratios[cell + k];
    const float own = Load(dy, i) * lrn.Power(lrn.Norm(x + cell, channel));
    Store(dx, i, own - 2 * lrn.alpha * float(lrn.beta) * Load(x, i) * sum);
  }
}
