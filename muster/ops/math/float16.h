// Whole arrays of 16-bit floats to float and back: kernels convert blocks instead of calling a
// function per element.
#pragma once

#include <cstdint>

#ifdef __F16C__
#include <immintrin.h>
#endif

#include "muster/tensor/dtype.h"

namespace muster {

inline void ConvertArray(const Half* from, int64_t count, float* to) {
  int64_t i = 0;
#ifdef __F16C__
  for (; i + 8 <= count; i += 8) {
    _mm256_storeu_ps(to + i,
                     _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
  }
#endif
  for (; i < count; ++i) to[i] = static_cast<float>(from[i]);
}

inline void ConvertArray(const float* from, int64_t count, Half* to) {
  int64_t i = 0;
#ifdef __F16C__
  for (; i + 8 <= count; i += 8) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
  }
#endif
  for (; i < count; ++i) to[i] = Half(from[i]);
}

inline void ConvertArray(const Bfloat16* __restrict from, int64_t count, float* __restrict to) {
  for (int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(from[i]);
}

inline void ConvertArray(const float* __restrict from, int64_t count, Bfloat16* __restrict to) {
  for (int64_t i = 0; i < count; ++i) to[i] = Bfloat16(from[i]);
}

}  // namespace muster
