// Dilation2D and its gradients. Every window's cell with the largest sum is found first, which is the
// first one of equals as on the CPU; then each element of a gradient adds up the windows whose cell
// it is, always in the same order.
#include "muster/ops/gpu.cuh"

// As GpuDilationSize of dilation2d.cc.
struct DilationSize {
  int32 batch, rows, columns, depth;
  int32 filter_rows, filter_columns;
  int32 out_rows, out_columns;
  int32 stride_rows, stride_columns;
  int32 rate_rows, rate_columns;
  int32 pad_rows, pad_columns;
};

template <typename T>
struct Best {
  Compute<T> sum;
  int32 tap;  // which element of the filter's space; -1: the window has no cell
};
template <typename T>
__device__ __forceinline__ Best<T> BestOf(const T* input, const T* filter, int64 i, const DilationSize& s) {
  const int32 d = int32(i % s.depth);
  const int64 pixel = i / s.depth;
  const int32 left = int32(pixel % s.out_columns) * s.stride_columns - s.pad_columns;
  const int32 top = int32(pixel / s.out_columns % s.out_rows) * s.stride_rows - s.pad_rows;
  const int64 image = pixel / s.out_columns / s.out_rows;
  Best<T> best = {Lowest<Compute<T>>(), -1};
  for (int32 v = 0; v < s.filter_rows; ++v) {
    const int32 y = top + v * s.rate_rows;
    if (y < 0 || y >= s.rows) continue;
    for (int32 u = 0; u < s.filter_columns; ++u) {
      const int32 x = left + u * s.rate_columns;
      if (x < 0 || x >= s.columns) continue;
      const int32 tap = v * s.filter_columns + u;
      // Rounded as it would be stored, so that equals are the same ones.
      const Compute<T> sum = Compute<T>(T(Load(input, ((image * s.rows + y) * s.columns + x) * s.depth + d) +
                                          Load(filter, int64(tap) * s.depth + d)));
      if (best.tap >= 0 && !(sum > best.sum)) continue;
      best = {sum, tap};
    }
  }
  return best;
}

template <typename T>
__global__ void Dilation(const T* input, const T* filter, T* output, int64 count, DilationSize s) {
  FOR_EACH_ELEMENT(i, count) Store(output, i, BestOf(input, filter, i, s).sum);
}

template <typename T>
__global__ void DilationTaps(const T* input, const T* filter, int32* taps, int64 count, DilationSize s) {
  FOR_EACH_ELEMENT(i, count) taps[i] = BestOf(input, filter, i, s).tap;
}

template <typename T>
__global__ void DilationBackwardInput(const int32* taps, const T* dy, T* dx, int64 count, DilationSize s) {
  FOR_EACH_ELEMENT(i, count) {
    const int32 d = int32(i % s.depth);
    const int64 pixel = i / s.depth;
    const int32 x = int32(pixel % s.columns), y = int32(pixel / s.columns % s.rows);
    const int64 image = pixel / s.columns / s.rows;
    Compute<T> sum = 0;
    // From the last element of the filter, so that the windows come in their order.
    for (int32 tap = s.filter_rows * s.filter_columns - 1; tap >= 0; --tap) {
      const int32 below = y + s.pad_rows - tap / s.filter_columns * s.rate_rows;
      const int32 right = x + s.pad_columns - tap % s.filter_columns * s.rate_columns;
      if (below < 0 || below % s.stride_rows != 0 || right < 0 || right % s.stride_columns != 0) continue;
      const int32 out_y = below / s.stride_rows, out_x = right / s.stride_columns;
      if (out_y >= s.out_rows || out_x >= s.out_columns) continue;
      const int64 window = ((image * s.out_rows + out_y) * s.out_columns + out_x) * s.depth + d;
      if (taps[window] == tap) sum += Load(dy, window);
    }
    Store(dx, i, sum);
  }
}

// A block for each element of the filter.
struct Add {
  template <typename C>
  static __device__ C None() { return C(0); }
  template <typename C>
  static __device__ C Join(C a, C b) { return a + b; }
};
template <typename T>
__global__ void DilationBackwardFilter(const int32* taps, const T* dy, T* dw, int64 count, DilationSize s) {
  const int64 windows = int64(s.batch) * s.out_rows * s.out_columns;
  for (int64 element = blockIdx.x; element < count; element += gridDim.x) {
    const int32 tap = int32(element / s.depth), d = int32(element % s.depth);
    Compute<T> sum = 0;
    for (int64 window = threadIdx.x; window < windows; window += blockDim.x) {
      if (taps[window * s.depth + d] == tap) sum += Load(dy, window * s.depth + d);
    }
    sum = ReduceBlock<Add>(sum);
    if (threadIdx.x == 0) Store(dw, element, sum);
    __syncthreads();
  }
}
