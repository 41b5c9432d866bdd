// Einsum: operands laid out as matrices, and the product laid out as asked.
#include "muster/ops/gpu.cuh"

// Axes to go through in row-major order, each with the step that it means in a tensor.
constexpr int kMostAxes = 16;
struct Axes {
  int64 count;
  int64 rank;
  int64 sizes[kMostAxes];
  int64 strides[kMostAxes];

  __device__ __forceinline__ int64 At(int64 i) const {
    int64 offset = 0;
    for (int axis = int(rank) - 1; axis > 0; --axis) {
      const int64 above = i / sizes[axis];
      offset += (i - above * sizes[axis]) * strides[axis];
      i = above;
    }
    return rank == 0 ? 0 : offset + i * strides[0];
  }
};

struct AddUp {
  template <typename C>
  static __device__ __forceinline__ C Join(C a, C b) {
    return a + b;
  }
  template <typename C>
  static __device__ __forceinline__ C None() {
    return C(0);
  }
};

// y[i] = the sum over `summed` at place i of `kept`: by a thread, or (by_blocks) by a block.
template <typename T>
__global__ void Pack(const T* x, T* y, Axes kept, Axes summed, bool by_blocks) {
  if (!by_blocks) {
    FOR_EACH_ELEMENT(i, kept.count) {
      const T* const from = x + kept.At(i);
      T sum = T(0);
      for (int64 k = 0; k < summed.count; ++k) sum += from[summed.At(k)];
      y[i] = sum;
    }
    return;
  }
  for (int64 i = blockIdx.x; i < kept.count; i += gridDim.x) {
    const T* const from = x + kept.At(i);
    T sum = T(0);
    for (int64 k = threadIdx.x; k < summed.count; k += blockDim.x) sum += from[summed.At(k)];
    sum = ReduceBlock<AddUp>(sum);
    if (threadIdx.x == 0) y[i] = sum;
  }
}

// y[place i of `places`] = x[i]
template <typename T>
__global__ void Unpack(const T* x, T* y, Axes places) {
  FOR_EACH_ELEMENT(i, places.count) y[places.At(i)] = x[i];
}
