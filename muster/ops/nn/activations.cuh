// The activations and their gradients.
#pragma once

#include "muster/ops/gpu.cuh"

// Rounded to T as if it were stored.
template <typename T>
__device__ __forceinline__ Compute<T> Rounded(Compute<T> x) {
  return Compute<T>(T(x));
}

struct Relu {
  template <typename T, typename C>
  static __device__ C Apply(C x, C) {
    return x < C(0) ? C(0) : x;
  }
};
struct ReluGrad {
  template <typename T, typename C>
  static __device__ C Apply(C dy, C y, C) {
    return y > C(0) ? dy : C(0);
  }
};
struct Relu6 {
  template <typename T, typename C>
  static __device__ C Apply(C x, C) {
    const C low = x < C(0) ? C(0) : x;
    return low > C(6) ? C(6) : low;
  }
};
struct Relu6Grad {
  template <typename T, typename C>
  static __device__ C Apply(C dy, C y, C) {
    return y > C(0) && y < C(6) ? dy : C(0);
  }
};
struct LeakyRelu {
  template <typename T, typename C>
  static __device__ C Apply(C x, C alpha) {
    return x > C(0) ? x : x * alpha;
  }
};
struct LeakyReluGrad {
  template <typename T, typename C>
  static __device__ C Apply(C dy, C x, C alpha) {
    return x > C(0) ? dy : dy * alpha;
  }
};

constexpr double kSeluScale = 1.0507009873554804934193349852946;
constexpr double kSeluScaleAlpha = 1.7580993408473768599402175208123;

// As TensorFlow has it: not more exact near zero, and with e^x rounded to T.
template <typename T>
__device__ __forceinline__ Compute<T> ExponentialMinusOne(Compute<T> x) {
  return Rounded<T>(exp(x)) - Compute<T>(1);
}
struct Elu {
  template <typename T, typename C>
  static __device__ C Apply(C x, C) {
    return x < C(0) ? ExponentialMinusOne<T>(x) : x;
  }
};
struct EluGrad {
  template <typename T, typename C>
  static __device__ C Apply(C dy, C y, C) {
    return y < C(0) ? (y + C(1)) * dy : dy;
  }
};
struct Selu {
  template <typename T, typename C>
  static __device__ C Apply(C x, C) {
    return x < C(0) ? C(kSeluScaleAlpha) * ExponentialMinusOne<T>(x) : C(kSeluScale) * x;
  }
};
struct SeluGrad {
  template <typename T, typename C>
  static __device__ C Apply(C dy, C y, C) {
    return y < C(0) ? dy * (y + C(kSeluScaleAlpha)) : dy * C(kSeluScale);
  }
};

// The precision that TensorFlow takes for softplus of T is 2^-kSoftplusBits.
template <typename T>
constexpr int kSoftplusBits = 23;
template <>
constexpr int kSoftplusBits<double> = 52;
template <>
constexpr int kSoftplusBits<Half> = 13;
template <>
constexpr int kSoftplusBits<Bfloat16> = 7;

struct Softplus {
  template <typename T, typename C>
  static __device__ C Apply(C x, C) {
    const C logarithm = Rounded<T>(C(-0.69314718055994530942 * kSoftplusBits<T>));
    const C threshold = Rounded<T>(logarithm + C(2));
    if (x > -threshold) return x;
    const C e = Rounded<T>(exp(x));
    return x < threshold ? e : log1p(e);
  }
};
struct SoftplusGrad {
  template <typename T, typename C>
  static __device__ C Apply(C dy, C x, C) {
    return dy / Rounded<T>(Rounded<T>(exp(-x)) + C(1));
  }
};
struct Softsign {
  template <typename T, typename C>
  static __device__ C Apply(C x, C) {
    return x / (fabs(x) + C(1));
  }
};
struct SoftsignGrad {
  template <typename T, typename C>
  static __device__ C Apply(C dy, C x, C) {
    const C d = fabs(x) + C(1);
    return dy / (d * d);
  }
};
