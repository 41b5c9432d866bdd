// The exponential in a form that compilers turn into vector code: no calls, no branches, no
// conversions to integers.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace muster {

// Within 2 ulp of e^x, denormal results included; 0 and infinity beyond the range, NaN stays NaN.
inline float Exponential(float x) {
  constexpr float kRound =
      12582912.0f;  // 1.5 * 2^23: adding it leaves the integer part in the low bits
  x = x > 89.0f ? 89.0f : x;
  x = x < -104.0f ? -104.0f : x;
  const float shifted = x * 1.44269504088896341f + kRound;
  const float whole = shifted - kRound;
  const float r = (x - whole * 0.693359375f) + whole * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  const int32_t exponent = std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(kRound);
  // 2^exponent in two factors: it may be outside the normal range.
  const int32_t half = exponent >> 1;
  const float a = std::bit_cast<float>((half + 127) << 23);
  const float b = std::bit_cast<float>((exponent - half + 127) << 23);
  const float y = p * a * b;
  return x != x ? x : y;
}
inline double Exponential(double x) {
  return std::exp(x);
}

}  // namespace muster
