// What happens to an element that is named by an index. Several threads may name the same one.
#pragma once

#include "muster/ops/gpu.cuh"

struct ScatterAdd {
  template <typename T>
  __device__ static void Apply(T* to, T update) {
    AtomicAdd(to, update);
  }
};
struct ScatterSub {
  template <typename T>
  __device__ static void Apply(T* to, T update) {
    AtomicAdd(to, T(-Compute<T>(update)));
  }
};
struct ScatterUpdate {
  template <typename T>
  __device__ static void Apply(T* to, T update) {
    *to = update;
  }
};
