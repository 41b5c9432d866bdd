// Exponential-like functions of float that the compiler turns into vector code: no branches, no
// calls, no tables. Within 2 units in the last place; NaN, infinities, signed zeros and denormals
// come out as from the C library.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace muster {

inline float FastExp(float x) {
  // Beyond these the result is infinite, or rounds to zero.
  float v = x > 89.0f ? 89.0f : x;
  v = v < -104.0f ? -104.0f : v;
  v = x != x ? 0.0f : v;
  const float n = __builtin_rintf(v * 1.44269504088896341f);
  float r = v - n * 0.693359375f;
  r = r - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  const float y = p * (r * r) + r + 1.0f;
  // 2^n in two factors, each of which is a normal number even where the product is not.
  const int32_t exponent = static_cast<int32_t>(n);
  const int32_t half = exponent >> 1;
  const float first = std::bit_cast<float>((half + 127) << 23);
  const float second = std::bit_cast<float>((exponent - half + 127) << 23);
  const float result = y * first * second;
  return x != x ? x : result;
}

inline float FastLog(float x) {
  const bool denormal = x < std::numeric_limits<float>::min();
  const float v = denormal ? x * 8388608.0f : x;
  const uint32_t bits = std::bit_cast<uint32_t>(v);
  int32_t exponent = static_cast<int32_t>(bits >> 23) - 126;
  exponent = denormal ? exponent - 23 : exponent;
  const float m = std::bit_cast<float>((bits & 0x7fffffu) | 0x3f000000u);  // in [0.5, 1)
  const bool low = m < 0.707106781186547524f;
  const float e = static_cast<float>(low ? exponent - 1 : exponent);
  const float f = low ? m + m - 1.0f : m - 1.0f;
  const float z = f * f;
  float p = 7.0376836292e-2f;
  p = p * f - 1.1514610310e-1f;
  p = p * f + 1.1676998740e-1f;
  p = p * f - 1.2420140846e-1f;
  p = p * f + 1.4249322787e-1f;
  p = p * f - 1.6668057665e-1f;
  p = p * f + 2.0000714765e-1f;
  p = p * f - 2.4999993993e-1f;
  p = p * f + 3.3333331174e-1f;
  float y = p * f * z;
  y = y + e * -2.12194440e-4f;
  y = y - 0.5f * z;
  float result = f + y;
  result = result + e * 0.693359375f;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  result = x == kInfinity ? kInfinity : result;
  result = x == 0.0f ? -kInfinity : result;
  result = x < 0.0f ? std::numeric_limits<float>::quiet_NaN() : result;
  return x != x ? x : result;
}

inline float FastTanh(float x) {
  const float a = __builtin_fabsf(x);
  const float z = a * a;
  float p = -5.70498872745e-3f;
  p = p * z + 2.06390887954e-2f;
  p = p * z - 5.37397155531e-2f;
  p = p * z + 1.33314422036e-1f;
  p = p * z - 3.33332819422e-1f;
  const float near = p * z * a + a;
  const float far = 1.0f - 2.0f / (FastExp(a + a) + 1.0f);
  return __builtin_copysignf(a < 0.625f ? near : far, x);
}

inline float FastSigmoid(float x) {
  const float e = FastExp(-__builtin_fabsf(x));
  return (x >= 0.0f ? 1.0f : e) / (1.0f + e);
}

}  // namespace muster
