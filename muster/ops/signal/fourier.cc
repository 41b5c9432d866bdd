#include "muster/ops/signal/fourier.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

namespace muster {
namespace {

using Value = FourierPlan::Value;

// Beyond this a factor costs more than the detour over a power of two.
constexpr int64_t kLargestRadix = 31;

// Without the checks for infinities that operator* makes.
Value Multiply(Value a, Value b) {
  return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
}

Value Root(int64_t k, int64_t length, bool inverse) {
  const double angle = 2 * std::numbers::pi * static_cast<double>(k) / static_cast<double>(length);
  return {std::cos(angle), inverse ? std::sin(angle) : -std::sin(angle)};
}

}  // namespace

FourierPlan::FourierPlan(int64_t length, bool inverse) : length_(length) {
  int64_t rest = length;
  while (rest % 4 == 0 && rest > 0) {
    radices_.push_back(4);
    rest /= 4;
  }
  for (int64_t p = 2; rest > 1 && p <= kLargestRadix; ++p) {
    for (; rest % p == 0; rest /= p) radices_.push_back(p);
  }
  if (rest <= 1) {
    roots_.resize(static_cast<size_t>(length));
    for (int64_t k = 0; k < length; ++k) roots_[k] = Root(k, length, inverse);
    return;
  }
  int64_t padded = 1;
  while (padded < 2 * length - 1) padded *= 2;
  forward_ = std::make_unique<FourierPlan>(padded, false);
  backward_ = std::make_unique<FourierPlan>(padded, true);
  chirp_.resize(static_cast<size_t>(length));
  chirp_spectrum_.assign(static_cast<size_t>(padded), Value());
  for (int64_t k = 0; k < length; ++k) {
    // k * k modulo 2 * length, so that the angle stays exact.
    const auto square = static_cast<int64_t>(static_cast<unsigned __int128>(k) * k % (2 * length));
    chirp_[k] = Root(square, 2 * length, inverse);
    chirp_spectrum_[k] = std::conj(chirp_[k]);
    if (k > 0) chirp_spectrum_[padded - k] = std::conj(chirp_[k]);
  }
  std::vector<Value> workspace;
  forward_->Run(chirp_spectrum_.data(), workspace);
  for (Value& value : chirp_spectrum_) value /= static_cast<double>(padded);
}

void FourierPlan::Run(Value* data, std::vector<Value>& workspace) const {
  if (length_ <= 1) return;
  if (forward_ != nullptr) return Chirp(data, workspace);
  workspace.assign(data, data + length_);
  MixedRadix(workspace.data(), 1, data, length_, 0);
}

// Decimation in time: the transforms of every radix-th value, combined.
void FourierPlan::MixedRadix(const Value* in, int64_t stride, Value* out, int64_t length,
                             size_t level) const {
  if (length == 1) {
    *out = *in;
    return;
  }
  const int64_t radix = radices_[level];
  const int64_t part = length / radix;
  for (int64_t r = 0; r < radix; ++r) {
    MixedRadix(in + r * stride, stride * radix, out + r * part, part, level + 1);
  }
  Combine(out, part, radix, stride);
}

void FourierPlan::Combine(Value* out, int64_t part, int64_t radix, int64_t step) const {
  std::array<Value, kLargestRadix + 1> terms;
  for (int64_t k = 0; k < part; ++k) {
    terms[0] = out[k];
    for (int64_t r = 1; r < radix; ++r) {
      terms[r] = Multiply(out[r * part + k], roots_[r * k * step]);
    }
    if (radix == 2) {
      out[k] = terms[0] + terms[1];
      out[part + k] = terms[0] - terms[1];
      continue;
    }
    if (radix == 4) {
      const Value a = terms[0] + terms[2];
      const Value b = terms[0] - terms[2];
      const Value c = terms[1] + terms[3];
      const Value d = Multiply(terms[1] - terms[3], roots_[part * step]);
      out[k] = a + c;
      out[part + k] = b + d;
      out[2 * part + k] = a - c;
      out[3 * part + k] = b - d;
      continue;
    }
    for (int64_t q = 0; q < radix; ++q) {
      Value sum = terms[0];
      for (int64_t r = 1; r < radix; ++r) {
        sum += Multiply(terms[r], roots_[r * q % radix * part * step]);
      }
      out[q * part + k] = sum;
    }
  }
}

// Bluestein: j k = (j^2 + k^2 - (k - j)^2) / 2 turns the sum into a convolution.
void FourierPlan::Chirp(Value* data, std::vector<Value>& workspace) const {
  std::vector<Value> padded(chirp_spectrum_.size());
  for (int64_t k = 0; k < length_; ++k) padded[k] = Multiply(data[k], chirp_[k]);
  forward_->Run(padded.data(), workspace);
  for (size_t k = 0; k < padded.size(); ++k) padded[k] = Multiply(padded[k], chirp_spectrum_[k]);
  backward_->Run(padded.data(), workspace);
  for (int64_t k = 0; k < length_; ++k) data[k] = Multiply(padded[k], chirp_[k]);
}

}  // namespace muster
