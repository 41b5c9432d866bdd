// Functions of two numbers (binary_arithmetic.cc, binary_transcendental.cc, binary_logic.cc,
// division.cc, complex.cc and gradients in unary_*.cc), Select and ClipByValue.
#pragma once

#include "muster/ops/math/elementwise.cuh"

// --- Sums, products and extrema
struct Add {
  static constexpr bool kWraps = true;
  template <typename C>
  static __device__ C Apply(C x, C y) {
    return x + y;
  }
};
struct Sub {
  static constexpr bool kWraps = true;
  template <typename C>
  static __device__ C Apply(C x, C y) {
    return x - y;
  }
};
struct Mul {
  static constexpr bool kWraps = true;
  template <typename C>
  static __device__ C Apply(C x, C y) {
    return x * y;
  }
};
struct MulNoNan {
  template <typename C>
  static __device__ C Apply(C x, C y) {
    return y == C(0) ? C(0) : x * y;
  }
};
struct SquaredDifference {
  static constexpr bool kWraps = true;
  template <typename C>
  static __device__ C Apply(C x, C y) {
    const C difference = x - y;
    return difference * difference;
  }
};
struct Maximum {
  template <typename C>
  static __device__ C Apply(C x, C y) {
    return x > y || x != x ? x : y;
  }
};
struct Minimum {
  template <typename C>
  static __device__ C Apply(C x, C y) {
    return x < y || x != x ? x : y;
  }
};

// --- Quotients and remainders. Nothing can be reported from a card: what is divided by zero
// becomes zero where the CPU fails.
template <typename C>
__device__ __forceinline__ C IntegerQuotient(C x, C y) {
  if (y == 0) return 0;
  using U = typename UnsignedOf<C>::type;
  return C(-1) < C(0) && y == C(-1) ? C(U(0) - U(x)) : C(x / y);
}
struct Divide {
  template <typename C>
  static __device__ C Apply(C x, C y) {
    if constexpr (kIsFloat<C> || kIsComplex<C>)
      return x / y;
    else
      return IntegerQuotient(x, y);
  }
};
struct DivNoNan {
  template <typename C>
  static __device__ C Apply(C x, C y) {
    return y == C(0) ? C(0) : x / y;
  }
};
struct FloorDiv {
  template <typename C>
  static __device__ C Apply(C x, C y) {
    if constexpr (kIsFloat<C>) {
      return floor(x / y);
    } else {
      const C quotient = IntegerQuotient(x, y);
      const C remainder = C(x - quotient * y);
      return y != 0 && remainder != 0 && (remainder < 0) != (y < 0) ? C(quotient - 1) : quotient;
    }
  }
};
// A 16-bit quotient is rounded before it is cut.
template <typename T>
struct RoundedFloorDiv {
  static __device__ float Apply(float x, float y) { return floor(Compute<T>(T(x / y))); }
};

// --- Powers and logarithms
struct Pow {
  template <typename C>
  static __device__ C Apply(C x, C y) {
    if constexpr (kIsFloat<C>) {
      // Mostly y is the same number for all.
      if (y == C(2)) return x * x;
      if (y == C(3)) return x * x * x;
      return pow(x, y);
    } else {
      if (y < 0) return 0;  // the CPU fails
      uint64 power = 1, base = uint64(x);
      for (uint64 rest = uint64(y); rest != 0; rest >>= 1) {
        if (rest & 1) power *= base;
        base *= base;
      }
      return C(power);
    }
  }
};
struct Xdivy {
  template <typename C>
  static __device__ C Apply(C x, C y) {
    return x == C(0) ? C(0) : x / y;
  }
};
struct Xlogy {
  template <typename C>
  static __device__ C Apply(C x, C y) {
    if (x == C(0)) return C(0);
    if constexpr (kIsComplex<C>)
      return x * C(log(hypot(y.re, y.im)), atan2(y.im, y.re));
    else
      return x * log(y);
  }
};
struct Atan2 {
  template <typename C>
  static __device__ C Apply(C y, C x) {
    return atan2(y, x);
  }
};
struct NextAfter {
  template <typename C>
  static __device__ C Apply(C from, C to) {
    return nextafter(from, to);
  }
};

// --- Comparisons, truth values and bits
#define MUSTER_OPERATOR(Name, operation)  \
  struct Name {                           \
    template <typename C>                 \
    static __device__ auto Apply(C x, C y) { \
      return x operation y;               \
    }                                     \
  };
MUSTER_OPERATOR(Equal, ==)
MUSTER_OPERATOR(NotEqual, !=)
MUSTER_OPERATOR(Less, <)
MUSTER_OPERATOR(LessEqual, <=)
MUSTER_OPERATOR(Greater, >)
MUSTER_OPERATOR(GreaterEqual, >=)
MUSTER_OPERATOR(And, &&)
MUSTER_OPERATOR(Or, ||)
#undef MUSTER_OPERATOR
#define MUSTER_BITS(Name, operation)      \
  struct Name {                           \
    static constexpr bool kWraps = true;  \
    template <typename C>                 \
    static __device__ C Apply(C x, C y) { \
      return x operation y;               \
    }                                     \
  };
MUSTER_BITS(BitwiseAnd, &)
MUSTER_BITS(BitwiseOr, |)
MUSTER_BITS(BitwiseXor, ^)
#undef MUSTER_BITS
// Distances are cut to [0, bits - 1].
template <typename C>
__device__ __forceinline__ int ShiftDistance(C y) {
  constexpr int kLast = int(sizeof(C)) * 8 - 1;
  if (y < C(0)) return 0;
  return y > C(kLast) ? kLast : int(y);
}
struct LeftShift {
  template <typename C>
  static __device__ C Apply(C x, C y) {
    return C(typename UnsignedOf<C>::type(x) << ShiftDistance(y));
  }
};
struct RightShift {
  template <typename C>
  static __device__ C Apply(C x, C y) {
    return C(x >> ShiftDistance(y));
  }
};

// --- Gradients in terms of y = f(x)
struct SqrtGrad {
  template <typename C>
  static __device__ C Apply(C y, C dy) {
    return C(0.5f) * dy / y;
  }
};
struct RsqrtGrad {
  template <typename C>
  static __device__ C Apply(C y, C dy) {
    return C(-0.5f) * (dy * y) * (y * y);
  }
};
struct ReciprocalGrad {
  template <typename C>
  static __device__ C Apply(C y, C dy) {
    return y * -dy * y;
  }
};
struct TanhGrad {
  template <typename C>
  static __device__ C Apply(C y, C dy) {
    return dy * (C(1) - y * y);
  }
};
struct SigmoidGrad {
  template <typename C>
  static __device__ C Apply(C y, C dy) {
    return dy * y * (C(1) - y);
  }
};

struct Combine {
  template <typename R>
  static __device__ Complex<R> Apply(R real, R imaginary) {
    return {real, imaginary};
  }
};

// --- Three operands
struct Select {
  template <typename T>
  static __device__ T Apply(bool condition, T then, T other) {
    return condition ? then : other;
  }
};
// The lower bound wins where the bounds contradict each other; NaN stays NaN.
struct Clip {
  template <typename C>
  static __device__ C Apply(C x, C low, C high) {
    const C upper = x > high ? high : x;
    return upper < low ? low : upper;
  }
};
