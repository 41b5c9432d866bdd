// Loops over elements that read and write 16 bytes at a time, the most that one instruction moves.
#pragma once

#include "muster/ops/gpu.cuh"

template <typename T, int size = 16 / sizeof(T)>
struct alignas(size * sizeof(T) < 16 ? size * sizeof(T) : 16) Pack {
  T at[size];
};

__device__ __forceinline__ bool IsAligned(const void* pointer) {
  return reinterpret_cast<uint64>(pointer) % 16 == 0;
}

template <typename T, typename F, typename... Packs>
__device__ __forceinline__ void MapPack(Pack<T>* to, int64 first, F f, Packs... in) {
  Pack<T> out;
#pragma unroll
  for (int k = 0; k < int(16 / sizeof(T)); ++k) Store(out.at, k, f(first + k, Load(in.at, k)...));
  *to = out;
}

// y[i] = f(i, x[i]...) for each i, by the threads of the whole grid: launched with as many threads
// as there are packs (packs.h). `y` may be one of the inputs.
template <typename T, typename F, typename... In>
__device__ __forceinline__ void MapElements(int64 count, T* y, F f, const In*... x) {
  constexpr int kSize = 16 / sizeof(T);
  const bool aligned = (IsAligned(y) && ... && IsAligned(x));
  const int64 packs = aligned ? count / kSize : 0;
  FOR_EACH_ELEMENT(p, packs) {
    MapPack(reinterpret_cast<Pack<T>*>(y) + p, p * kSize, f,
            reinterpret_cast<const Pack<T>*>(x)[p]...);
  }
  const int64 done = packs * kSize;
  FOR_EACH_ELEMENT(rest, count - done) {
    const int64 i = done + rest;
    Store(y, i, f(i, Load(x, i)...));
  }
}
