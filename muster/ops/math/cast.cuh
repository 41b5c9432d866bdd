// The conversions of cast.cc.
#pragma once

#include "muster/ops/math/elementwise.cuh"

// As on the CPU: cut towards zero, and the lowest value (for narrow types: its low bits) where the
// number does not fit.
template <typename D, typename S>
__device__ __forceinline__ D FloatToInteger(S x) {
  if constexpr (kSame<D, int64>) {
    const bool fits = x >= S(-9223372036854775808.0) && x < S(9223372036854775808.0);
    return fits ? int64(x) : Lowest<int64>();
  } else if constexpr (kSame<D, uint64>) {
    const bool fits = x >= S(-9223372036854775808.0) && x < S(18446744073709551616.0);
    const bool upper = x >= S(9223372036854775808.0);
    const S low = upper ? x - S(9223372036854775808.0) : x;
    const uint64 value = uint64(int64(fits ? low : S(0)));
    return !fits || upper ? value + (uint64(1) << 63) : value;
  } else if constexpr (kSame<D, uint32>) {
    const bool fits = x > S(-2147483649.0) && x < S(4294967296.0);
    return fits ? uint32(int64(x)) : uint32(1) << 31;
  } else {
    const bool fits = kSame<S, float> ? x >= S(-2147483648.0) && x < S(2147483648.0)
                                      : x > S(-2147483649.0) && x < S(2147483648.0);
    return D(fits ? int32(x) : Lowest<int32>());
  }
}

template <typename T>
__device__ __forceinline__ T RealPartOf(T x) {
  return x;
}
template <typename R>
__device__ __forceinline__ R RealPartOf(Complex<R> x) {
  return x.re;
}

// Clears the low bits of significands, so that the rounding that follows has nothing to round.
template <typename R>
__device__ __forceinline__ R Truncated(R x, int bits) {
  if constexpr (kSame<R, float>)
    return BitCast<float>(BitCast<uint32>(x) >> bits << bits);
  else if constexpr (kSame<R, double>)
    return BitCast<double>(BitCast<uint64>(x) >> bits << bits);
  else
    return x;
}

template <typename D, typename C>
__device__ __forceinline__ D Convert(C x, int cleared_bits) {
  if constexpr (kIsComplex<C> && kIsComplex<D>) {
    return D(x.re, x.im);
  } else {
    using R = decltype(RealPartOf(C()));
    const R real = Truncated(RealPartOf(x), cleared_bits);
    if constexpr (kSame<D, bool>)
      return real != R(0);
    else if constexpr (kIsFloat<R> && !kIsFloat<D> && !kIsComplex<D>)
      return FloatToInteger<D>(real);
    else if constexpr (kSame<D, Complex64> || kSame<D, Half> || kSame<D, Bfloat16>)
      return D(float(real));
    else if constexpr (kSame<D, Complex128>)
      return D(double(real));
    else
      return D(real);
  }
}
