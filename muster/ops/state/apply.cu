// How optimizers change one element of a variable and of its slots: the formulas of apply_descent.cc,
// apply_adam.cc and apply_adaptive.cc. `h` are the scalars in the order of the op's definition.
#include "muster/ops/gpu.cuh"

template <typename C>
struct Hyper {
  C scalars[8];
  bool use_nesterov, update_slots;
  __device__ __forceinline__ C operator[](int i) const { return scalars[i]; }
};

template <typename C>
__device__ __forceinline__ C Sign(C x) {
  return C(x > C(0)) - C(x < C(0));
}

struct GradientDescent {
  static constexpr int kSlots = 0, kScalars = 1;
  template <typename C>
  static __device__ __forceinline__ void Run(const Hyper<C>& h, C g, C& var, C*) {
    var -= g * h[0];
  }
};

struct Momentum {
  static constexpr int kSlots = 1, kScalars = 2;
  template <typename C>
  static __device__ __forceinline__ void Run(const Hyper<C>& h, C g, C& var, C* slots) {
    slots[0] = slots[0] * h[1] + g;
    var -= h.use_nesterov ? g * h[0] + slots[0] * h[1] * h[0] : slots[0] * h[0];
  }
};

struct KerasMomentum {
  static constexpr int kSlots = 1, kScalars = 2;
  template <typename C>
  static __device__ __forceinline__ void Run(const Hyper<C>& h, C g, C& var, C* slots) {
    slots[0] = slots[0] * h[1] - g * h[0];
    var += h.use_nesterov ? slots[0] * h[1] - g * h[0] : slots[0];
  }
};

struct AddSign {
  static constexpr int kSlots = 1, kScalars = 4;
  template <typename C>
  static __device__ __forceinline__ void Run(const Hyper<C>& h, C g, C& var, C* slots) {
    slots[0] = slots[0] * h[3] + g * (C(1) - h[3]);
    var -= h[0] * (h[1] + h[2] * (Sign(g) * Sign(slots[0]))) * g;
  }
};

struct PowerSign {
  static constexpr int kSlots = 1, kScalars = 4;
  template <typename C>
  static __device__ __forceinline__ void Run(const Hyper<C>& h, C g, C& var, C* slots) {
    slots[0] = slots[0] * h[3] + g * (C(1) - h[3]);
    var -= h[0] * exp(h[1] * h[2] * (Sign(g) * Sign(slots[0]))) * g;
  }
};

struct Adam {
  static constexpr int kSlots = 2, kScalars = 6;
  template <typename C>
  static __device__ __forceinline__ void Run(const Hyper<C>& h, C g, C& var, C* slots) {
    const C alpha = h[2] * sqrt(C(1) - h[1]) / (C(1) - h[0]);
    const C rest1 = C(1) - h[3], rest2 = C(1) - h[4];
    slots[0] += (g - slots[0]) * rest1;
    slots[1] += (g * g - slots[1]) * rest2;
    const C direction = h.use_nesterov ? g * rest1 + h[3] * slots[0] : slots[0];
    var -= direction * alpha / (sqrt(slots[1]) + h[5]);
  }
};

struct AdamWithAmsgrad {
  static constexpr int kSlots = 3, kScalars = 6;
  template <typename C>
  static __device__ __forceinline__ void Run(const Hyper<C>& h, C g, C& var, C* slots) {
    const C alpha = h[2] * sqrt(C(1) - h[1]) / (C(1) - h[0]);
    slots[0] += (g - slots[0]) * (C(1) - h[3]);
    slots[1] += (g * g - slots[1]) * (C(1) - h[4]);
    slots[2] = slots[2] < slots[1] ? slots[1] : slots[2];
    var -= slots[0] * alpha / (sqrt(slots[2]) + h[5]);
  }
};

struct AdaMax {
  static constexpr int kSlots = 2, kScalars = 5;
  template <typename C>
  static __device__ __forceinline__ void Run(const Hyper<C>& h, C g, C& var, C* slots) {
    slots[0] += (g - slots[0]) * (C(1) - h[2]);
    const C decayed = h[3] * slots[1], size = g < C(0) ? -g : g;
    slots[1] = decayed < size ? size : decayed;
    var -= h[1] / (C(1) - h[0]) * (slots[0] / (slots[1] + h[4]));
  }
};

struct Adagrad {
  static constexpr int kSlots = 1, kScalars = 1;
  template <typename C>
  static __device__ __forceinline__ void Run(const Hyper<C>& h, C g, C& var, C* slots) {
    if (h.update_slots) slots[0] += g * g;
    var -= g * h[0] / sqrt(slots[0]);
  }
};

struct AdagradV2 {
  static constexpr int kSlots = 1, kScalars = 2;
  template <typename C>
  static __device__ __forceinline__ void Run(const Hyper<C>& h, C g, C& var, C* slots) {
    if (h.update_slots) slots[0] += g * g;
    var -= g * h[0] / (sqrt(slots[0]) + h[1]);
  }
};

struct Adadelta {
  static constexpr int kSlots = 2, kScalars = 3;
  template <typename C>
  static __device__ __forceinline__ void Run(const Hyper<C>& h, C g, C& var, C* slots) {
    slots[0] = slots[0] * h[1] + g * g * (C(1) - h[1]);
    const C update = sqrt(slots[1] + h[2]) / sqrt(slots[0] + h[2]) * g;
    var -= update * h[0];
    slots[1] = slots[1] * h[1] + update * update * (C(1) - h[1]);
  }
};

struct RMSProp {
  static constexpr int kSlots = 2, kScalars = 4;
  template <typename C>
  static __device__ __forceinline__ void Run(const Hyper<C>& h, C g, C& var, C* slots) {
    slots[0] += (g * g - slots[0]) * (C(1) - h[1]);
    slots[1] = slots[1] * h[2] + g * h[0] / sqrt(slots[0] + h[3]);
    var -= slots[1];
  }
};

struct CenteredRMSProp {
  static constexpr int kSlots = 3, kScalars = 4;
  template <typename C>
  static __device__ __forceinline__ void Run(const Hyper<C>& h, C g, C& var, C* slots) {
    slots[1] += (g * g - slots[1]) * (C(1) - h[1]);
    slots[0] += (g - slots[0]) * (C(1) - h[1]);
    slots[2] = slots[2] * h[2] + g * h[0] / sqrt(slots[1] - slots[0] * slots[0] + h[3]);
    var -= slots[2];
  }
};

// As GpuApplyKernel hands them over.
template <typename T>
struct ApplyArguments {
  T* var;
  T* slots[3];
  const T* gradient;
  const T* scalars[8];
  int64 count;
  bool use_nesterov, update_slots;
};

template <typename F, typename T>
__global__ void Apply(ApplyArguments<T> a) {
  using C = Compute<T>;
  Hyper<C> h;
#pragma unroll
  for (int i = 0; i < F::kScalars; ++i) h.scalars[i] = Load(a.scalars[i], 0);
  h.use_nesterov = a.use_nesterov;
  h.update_slots = a.update_slots;
  FOR_EACH_ELEMENT(i, a.count) {
    C var = Load(a.var, i), slots[3];
#pragma unroll
    for (int s = 0; s < F::kSlots; ++s) slots[s] = Load(a.slots[s], i);
    F::Run(h, Load(a.gradient, i), var, slots);
    Store(a.var, i, var);
#pragma unroll
    for (int s = 0; s < F::kSlots; ++s) Store(a.slots[s], i, slots[s]);
  }
}
