// What reductions join, for reduce.cuh: Sum, Mean, Prod, Max, Min, All, Any, EuclideanNorm, L2Loss, ArgMax, ArgMin.
#pragma once

#include "muster/ops/math/reduce.cuh"

// What sums of T are made in: integers wrap around.
template <typename T>
using SumType = Compute<typename UnsignedOf<T>::type>;

template <typename Element>
struct Sum {
  using T = Element;
  using A = SumType<Element>;
  using R = Element;
  static __device__ A None() { return A(0); }
  static __device__ A Join(A a, A b) { return a + b; }
  static __device__ A Take(Compute<T> x, int64) { return A(x); }
  static __device__ R Finish(A total, int64) { return R(total); }
};
template <typename Element>
struct Prod : Sum<Element> {
  using typename Sum<Element>::A;
  static __device__ A None() { return A(1); }
  static __device__ A Join(A a, A b) { return a * b; }
};
template <typename Element>
struct Mean : Sum<Element> {
  using typename Sum<Element>::A;
  using typename Sum<Element>::R;
  static __device__ R Finish(A total, int64 terms) {
    if constexpr (kIsComplex<A>) {
      using Part = decltype(total.re);
      return terms == 0 ? A(0) : A(total.re / Part(terms), total.im / Part(terms));
    } else {
      return R(total / A(terms));
    }
  }
};

// NaN wins, whichever side it is on.
template <typename Element, bool max>
struct Extreme {
  using T = Element;
  using A = Compute<Element>;
  using R = Element;
  static __device__ A None() {
    if constexpr (kIsFloat<A>)
      return max ? -Infinity<A>() : Infinity<A>();
    else
      return max ? Lowest<A>() : Highest<A>();
  }
  static __device__ A Join(A a, A b) { return (max ? a > b : a < b) || a != a ? a : b; }
  static __device__ A Take(A x, int64) { return x; }
  static __device__ R Finish(A total, int64) { return R(total); }
};
template <typename T>
using Max = Extreme<T, true>;
template <typename T>
using Min = Extreme<T, false>;

template <typename T>
struct RealOf {
  using type = Compute<T>;
};
template <typename Real>
struct RealOf<Complex<Real>> {
  using type = Real;
};
template <typename Element>
struct EuclideanNorm {
  using T = Element;
  using A = typename RealOf<Element>::type;
  using R = Element;
  static __device__ A None() { return A(0); }
  static __device__ A Join(A a, A b) { return a + b; }
  static __device__ A Take(Compute<T> x, int64) {
    if constexpr (kIsComplex<T>)
      return x.re * x.re + x.im * x.im;
    else
      return x * x;
  }
  static __device__ R Finish(A total, int64) { return R(sqrt(total)); }
};
template <typename Element>
struct HalfSquares : Sum<Element> {
  using typename Sum<Element>::A;
  static __device__ A Take(A x, int64) { return x * x * A(0.5f); }
};

template <bool all>
struct Logical {
  using T = bool;
  using A = uint32;
  using R = bool;
  static __device__ A None() { return all; }
  static __device__ A Join(A a, A b) { return all ? a & b : a | b; }
  static __device__ A Take(bool x, int64) { return x; }
  static __device__ R Finish(A total, int64) { return total != 0; }
};
using All = Logical<true>;
using Any = Logical<false>;

// Where the best element is, the first of several. NaN is never better than anything.
template <typename C>
struct Candidate {
  int64 at;
  C value;
};
template <typename Element, typename Index, bool max>
struct ArgExtreme {
  using T = Element;
  using C = Compute<Element>;
  using A = Candidate<C>;
  using R = Index;
  static __device__ A None() { return {0, max ? Lowest<C>() : Highest<C>()}; }
  static __device__ A Join(A a, A b) {
    const bool better = max ? b.value > a.value : b.value < a.value;
    return better || (b.value == a.value && b.at < a.at) ? b : a;
  }
  static __device__ A Take(C x, int64 term) { return {term, x}; }
  static __device__ R Finish(A total, int64) { return R(total.at); }
};
template <typename T, typename Index>
using ArgMax = ArgExtreme<T, Index, true>;
template <typename T, typename Index>
using ArgMin = ArgExtreme<T, Index, false>;
