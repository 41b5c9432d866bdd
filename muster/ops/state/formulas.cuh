// How optimizers change one element of a variable and of its slots: the formulas of apply_descent.cc,
// apply_adam.cc and apply_adaptive.cc. `h` are the scalars in the order of the op's definition.
#pragma once

#include "muster/ops/gpu.cuh"

template <typename C>
struct Hyper {
  C scalars[8];
  C global_step;
  bool use_nesterov, update_slots, multiply_linear_by_lr;
  __device__ __forceinline__ C operator[](int i) const { return scalars[i]; }
};

template <typename C>
__device__ __forceinline__ C Sign(C x) {
  return C(x > C(0)) - C(x < C(0));
}
template <typename C>
__device__ __forceinline__ C Magnitude(C x) {
  return x < C(0) ? -x : x;
}
// Of the size `magnitude`, which is not negative, with the sign of `x`.
template <typename C>
__device__ __forceinline__ C WithSignOf(C magnitude, C x) {
  return x < C(0) ? -magnitude : magnitude;
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

// Dual averaging: the variable follows from the sums alone.
struct AdagradDA {
  static constexpr int kSlots = 2, kScalars = 3;
  template <typename C>
  static __device__ __forceinline__ void Run(const Hyper<C>& h, C g, C& var, C* slots) {
    const C lr = h[0], l1 = h[1], l2 = h[2], step = h.global_step;
    slots[0] += g;
    slots[1] += g * g;
    const C shrunk = Magnitude(slots[0]) - step * l1, size = shrunk < C(0) ? C(0) : shrunk;
    const C direction = l1 > C(0) ? WithSignOf(size, slots[0]) : slots[0];
    var = -lr * direction / (l2 * step * lr + sqrt(slots[1]));
  }
};

// Shrinks |v| by lr * l1, then divides by 1 + lr * l2.
template <typename C>
__device__ __forceinline__ C Proximal(C v, C lr, C l1, C l2) {
  const C shrunk = Magnitude(v) - lr * l1;
  return (l1 > C(0) ? WithSignOf(shrunk < C(0) ? C(0) : shrunk, v) : v) / (C(1) + l2 * lr);
}

struct ProximalGradientDescent {
  static constexpr int kSlots = 0, kScalars = 3;
  template <typename C>
  static __device__ __forceinline__ void Run(const Hyper<C>& h, C g, C& var, C*) {
    var = Proximal(var - g * h[0], h[0], h[1], h[2]);
  }
};

struct ProximalAdagrad {
  static constexpr int kSlots = 1, kScalars = 3;
  template <typename C>
  static __device__ __forceinline__ void Run(const Hyper<C>& h, C g, C& var, C* slots) {
    slots[0] += g * g;
    const C rate = h[0] / sqrt(slots[0]);
    var = Proximal(var - g * rate, rate, h[1], h[2]);
  }
};

// x to the power of -lr_power; mostly a square root.
template <typename C>
__device__ __forceinline__ C RatePower(C x, C lr_power) {
  return lr_power == C(-0.5) ? sqrt(x) : pow(x, -lr_power);
}

template <bool shrinks>
struct FollowTheLeader {
  static constexpr int kSlots = 2, kScalars = shrinks ? 5 : 4;
  template <typename C>
  static __device__ __forceinline__ void Run(const Hyper<C>& h, C g, C& var, C* slots) {
    const C lr = h[0], l1 = h[1], l2 = h[2], lr_power = h[kScalars - 1];
    const C scale = h.multiply_linear_by_lr ? lr : C(1), rate = h.multiply_linear_by_lr ? C(1) : lr;
    const C shrunk = shrinks ? g + C(2) * h[3] * var : g;
    const C accum = slots[0] + g * g, power = RatePower(accum, lr_power);
    slots[1] += shrunk * scale - (power - RatePower(slots[0], lr_power)) / rate * var;
    const C quadratic = power / rate + C(2) * l2 * scale, limit = l1 * scale;
    var = Magnitude(slots[1]) > limit ? (WithSignOf(limit, slots[1]) - slots[1]) / quadratic : C(0);
    slots[0] = accum;
  }
};
struct Ftrl : FollowTheLeader<false> {};
struct FtrlV2 : FollowTheLeader<true> {};

// As the kernels hand them over (apply_gpu.cc).
template <typename T>
struct ApplyArguments {
  T* var;
  T* slots[3];
  const T* gradient;
  const T* scalars[8];
  const int64* global_step;  // null where a formula has none
  int64 count;
  int32 use_nesterov, update_slots, multiply_linear_by_lr, unused;

  template <typename F>
  __device__ __forceinline__ Hyper<Compute<T>> HyperOf() const {
    Hyper<Compute<T>> h;
#pragma unroll
    for (int i = 0; i < F::kScalars; ++i) h.scalars[i] = Load(scalars[i], 0);
    h.global_step = global_step == nullptr ? Compute<T>(0) : Compute<T>(*global_step);
    h.use_nesterov = use_nesterov;
    h.update_slots = update_slots;
    h.multiply_linear_by_lr = multiply_linear_by_lr;
    return h;
  }
};
