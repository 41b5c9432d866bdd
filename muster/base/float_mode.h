// Results too small for a normal float become zero while kernels run, as TensorFlow's do: denormals
// are slow, and programs compare with its numbers.
#pragma once

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace muster {

// Flushes denormals on this thread for as long as it lives.
class FlushDenormals {
 public:
#if defined(__SSE2__)
  FlushDenormals() : old_(_mm_getcsr()) {
    if (old_ != (old_ | kFlush)) _mm_setcsr(old_ | kFlush);
  }
  ~FlushDenormals() {
    if (old_ != (old_ | kFlush)) _mm_setcsr(old_);
  }

 private:
  static constexpr unsigned kFlush = 0x8040;  // flush to zero, denormals are zero
  const unsigned old_;
#else
  FlushDenormals() {}
#endif
 public:
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;
};

}  // namespace muster
