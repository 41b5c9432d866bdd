// Discrete Fourier transforms of any length, in double precision.
#pragma once

#include <complex>
#include <cstdint>
#include <memory>
#include <vector>

namespace muster {

// A transform of one length and direction; unscaled both ways. Immutable once made: threads may
// share it, each with a workspace of its own.
class FourierPlan {
 public:
  using Value = std::complex<double>;

  FourierPlan(int64_t length, bool inverse);

  int64_t length() const { return length_; }
  // Transforms `data` (length() values) in place.
  void Run(Value* data, std::vector<Value>& workspace) const;

 private:
  void MixedRadix(const Value* in, int64_t stride, Value* out, int64_t length, size_t level) const;
  void Combine(Value* out, int64_t length, int64_t radix, int64_t step) const;
  void Chirp(Value* data, std::vector<Value>& workspace) const;

  int64_t length_;
  std::vector<int64_t> radices_;
  std::vector<Value> roots_;  // exp(-+2 pi i k / length)
  // A length with a large prime factor becomes a convolution, done with a length that is a power of
  // two.
  std::vector<Value> chirp_;
  std::vector<Value> chirp_spectrum_;
  std::unique_ptr<FourierPlan> forward_;
  std::unique_ptr<FourierPlan> backward_;
};

}  // namespace muster
