// Cumsum and Cumprod of [outer, length, inner] along the middle.
#include "muster/ops/math/elementwise.cuh"

struct Add {
  template <typename A>
  static __device__ A None() { return A(0); }
  template <typename A>
  static __device__ A Join(A a, A b) { return a + b; }
};
struct Multiply {
  template <typename A>
  static __device__ A None() { return A(1); }
  template <typename A>
  static __device__ A Join(A a, A b) { return a * b; }
};

struct ScanShape {
  int64 series;  // outer * inner
  int64 length;
  Divisor inner;
  int32 exclusive, reverse;
  __device__ __forceinline__ int64 FirstOf(int64 number) const {
    const int64 outer = inner.Divide(number);
    return outer * length * inner.size + (number - outer * inner.size);
  }
  __device__ __forceinline__ int64 StepOf(int64 i) const {
    return (reverse ? length - 1 - i : i) * inner.size;
  }
};

// A thread for each series; every sum is rounded, as on the CPU.
template <typename Op, typename T>
__global__ void ScanByThreads(const T* x, T* y, ScanShape shape) {
  using A = Compute<typename UnsignedOf<T>::type>;
  FOR_EACH_ELEMENT(number, shape.series) {
    const int64 first = shape.FirstOf(number);
    T total = T(Op::template None<A>());
#pragma unroll 1
    for (int64 i = 0; i < shape.length; ++i) {
      const int64 at = first + shape.StepOf(i);
      const T term = x[at];
      if (shape.exclusive) y[at] = total;
      const bool is_first = i == 0 && !shape.exclusive;
      total = is_first ? term : T(Op::Join(A(Load(&total, 0)), A(Load(&term, 0))));
      if (!shape.exclusive) y[at] = total;
    }
  }
}

// A block for each series, in chunks of some elements for each thread.
template <typename Op, typename T>
__global__ void ScanByBlocks(const T* x, T* y, ScanShape shape) {
  using A = Compute<typename UnsignedOf<T>::type>;
  constexpr int kThreads = 256, kItems = 4;
  alignas(16) __shared__ unsigned char memory[kThreads * sizeof(A)];
  A* const shared = reinterpret_cast<A*>(memory);
  const int thread = threadIdx.x;
  for (int64 number = blockIdx.x; number < shape.series; number += gridDim.x) {
    const int64 first = shape.FirstOf(number);
    A carry = Op::template None<A>();
    for (int64 chunk = 0; chunk < shape.length; chunk += kThreads * kItems) {
      const int64 begin = chunk + thread * kItems;
      A items[kItems], total = Op::template None<A>();
      for (int k = 0; k < kItems; ++k) {
        if (begin + k < shape.length)
          total = Op::Join(total, A(Load(x, first + shape.StepOf(begin + k))));
        items[k] = total;
      }
      shared[thread] = total;
      __syncthreads();
      for (int offset = 1; offset < kThreads; offset *= 2) {
        const A before = thread >= offset ? shared[thread - offset] : Op::template None<A>();
        __syncthreads();
        shared[thread] = Op::Join(before, shared[thread]);
        __syncthreads();
      }
      const A before = thread > 0 ? Op::Join(carry, shared[thread - 1]) : carry;
      for (int k = 0; k < kItems && begin + k < shape.length; ++k) {
        const int taken = shape.exclusive ? k - 1 : k;
        Store(y, first + shape.StepOf(begin + k),
              taken < 0 ? before : Op::Join(before, items[taken]));
      }
      carry = Op::Join(carry, shared[kThreads - 1]);
      __syncthreads();
    }
  }
}
