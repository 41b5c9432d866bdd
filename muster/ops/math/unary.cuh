// Functions of one number (unary_arithmetic.cc, unary_transcendental.cc, complex.cc).
#pragma once

#include "muster/ops/math/elementwise.cuh"

// --- Signs and roundings
struct Abs {
  template <typename C>
  static __device__ C Apply(C x) {
    if constexpr (kIsFloat<C>)
      return fabs(x);
    else
      return x < 0 ? C(typename UnsignedOf<C>::type(0) - typename UnsignedOf<C>::type(x)) : x;
  }
};
struct Neg {
  static constexpr bool kWraps = true;
  template <typename C>
  static __device__ C Apply(C x) {
    if constexpr (kIsFloat<C> || kIsComplex<C>)
      return -x;
    else
      return C(0) - x;
  }
};
struct Sign {
  template <typename C>
  static __device__ C Apply(C x) {
    if constexpr (kIsComplex<C>) {
      const auto modulus = hypot(x.re, x.im);
      return x == C(0) ? C(0) : C(x.re / modulus, x.im / modulus);
    } else {
      return x != x ? x : C((x > C(0)) - (x < C(0)));
    }
  }
};
struct Square {
  static constexpr bool kWraps = true;
  template <typename C>
  static __device__ C Apply(C x) {
    return x * x;
  }
};
struct Floor {
  template <typename C>
  static __device__ C Apply(C x) {
    return floor(x);
  }
};
struct Ceil {
  template <typename C>
  static __device__ C Apply(C x) {
    return ceil(x);
  }
};
// Half to even.
struct Round {
  template <typename C>
  static __device__ C Apply(C x) {
    if constexpr (kIsFloat<C>)
      return rint(x);
    else
      return x;
  }
};

// --- Roots and quotients
struct Sqrt {
  template <typename C>
  static __device__ C Apply(C x) {
    return sqrt(x);
  }
};
struct Rsqrt {
  template <typename C>
  static __device__ C Apply(C x) {
    return C(1) / sqrt(x);
  }
};
struct Reciprocal {
  template <typename C>
  static __device__ C Apply(C x) {
    if constexpr (kIsFloat<C>)
      return C(1) / x;
    else
      return x == 1 || x == -1 ? x : C(0);  // of zero as well: nothing can be reported
  }
};

// --- Exponentials and logarithms
struct Exp {
  template <typename C>
  static __device__ C Apply(C x) {
    if constexpr (kIsComplex<C>) {
      const auto modulus = exp(x.re);
      return x.im == 0 ? C(modulus, x.im) : C(modulus * cos(x.im), modulus * sin(x.im));
    } else {
      return exp(x);
    }
  }
};
struct Sigmoid {
  template <typename C>
  static __device__ C Apply(C x) {
    const C e = exp(-fabs(x));
    return (x >= C(0) ? C(1) : e) / (C(1) + e);
  }
};

#define MUSTER_LIBRARY_FUNCTION(Name, function) \
  struct Name {                                 \
    template <typename C>                       \
    static __device__ C Apply(C x) {            \
      return function(x);                       \
    }                                           \
  };
MUSTER_LIBRARY_FUNCTION(Expm1, expm1)
MUSTER_LIBRARY_FUNCTION(Log, log)
MUSTER_LIBRARY_FUNCTION(Log1p, log1p)
MUSTER_LIBRARY_FUNCTION(Tanh, tanh)
MUSTER_LIBRARY_FUNCTION(Sin, sin)
MUSTER_LIBRARY_FUNCTION(Cos, cos)
MUSTER_LIBRARY_FUNCTION(Tan, tan)
MUSTER_LIBRARY_FUNCTION(Asin, asin)
MUSTER_LIBRARY_FUNCTION(Acos, acos)
MUSTER_LIBRARY_FUNCTION(Atan, atan)
MUSTER_LIBRARY_FUNCTION(Sinh, sinh)
MUSTER_LIBRARY_FUNCTION(Cosh, cosh)
MUSTER_LIBRARY_FUNCTION(Asinh, asinh)
MUSTER_LIBRARY_FUNCTION(Acosh, acosh)
MUSTER_LIBRARY_FUNCTION(Atanh, atanh)
MUSTER_LIBRARY_FUNCTION(Erf, erf)
MUSTER_LIBRARY_FUNCTION(Erfc, erfc)
#undef MUSTER_LIBRARY_FUNCTION

// --- Truth values and bits
struct IsNan {
  template <typename C>
  static __device__ bool Apply(C x) {
    return x != x;
  }
};
struct IsInf {
  template <typename C>
  static __device__ bool Apply(C x) {
    return fabs(x) == Infinity<C>();
  }
};
struct IsFinite {
  template <typename C>
  static __device__ bool Apply(C x) {
    return fabs(x) < Infinity<C>();
  }
};
struct Not {
  static __device__ bool Apply(bool x) { return !x; }
};
struct Complement {
  static constexpr bool kWraps = true;
  template <typename C>
  static __device__ C Apply(C x) {
    return ~x;
  }
};

// --- Parts of complex numbers
struct RealPart {
  template <typename R>
  static __device__ R Apply(Complex<R> x) {
    return x.re;
  }
};
struct ImaginaryPart {
  template <typename R>
  static __device__ R Apply(Complex<R> x) {
    return x.im;
  }
};
struct Argument {
  template <typename R>
  static __device__ R Apply(Complex<R> x) {
    return atan2(x.im, x.re);
  }
};
struct Modulus {
  template <typename R>
  static __device__ R Apply(Complex<R> x) {
    return hypot(x.re, x.im);
  }
};
struct Conjugation {
  template <typename R>
  static __device__ Complex<R> Apply(Complex<R> x) {
    return {x.re, -x.im};
  }
};
