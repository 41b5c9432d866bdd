// Rows reduced by segment: what SegmentX, UnsortedSegmentX and SparseSegmentX share.
#pragma once

#include <limits>
#include <type_traits>

#include "muster/ops/op.h"

namespace muster {

enum class SegmentOp { kSum, kMean, kSqrtN, kProd, kMin, kMax };

// a op b in the arithmetic type; integers wrap around. Of NaNs the later operand decides, as in
// TensorFlow.
template <SegmentOp kOp, typename A>
inline A Reduce(A a, A b) {
  if constexpr (kOp == SegmentOp::kMin) {
    return a < b ? a : b;
  } else if constexpr (kOp == SegmentOp::kMax) {
    return a > b ? a : b;
  } else if constexpr (std::is_integral_v<A>) {
    using U = std::make_unsigned_t<A>;
    // 16-bit products would be computed in int: 64 bits do not overflow in signed arithmetic.
    const uint64_t x = static_cast<U>(a);
    const uint64_t y = static_cast<U>(b);
    return static_cast<A>(static_cast<U>(kOp == SegmentOp::kProd ? x * y : x + y));
  } else {
    return kOp == SegmentOp::kProd ? a * b : a + b;
  }
}

template <SegmentOp kOp, typename T>
inline void ReduceRow(Compute<T>* __restrict to, const T* __restrict row, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = Reduce<kOp>(to[i], static_cast<Compute<T>>(row[i]));
}

// to[i] = to[i] op row[i]; the mean and the like add.
template <typename T>
void ReduceRow(SegmentOp op, Compute<T>* to, const T* row, int64_t count) {
  if constexpr (std::is_same_v<T, Complex64> || std::is_same_v<T, Complex128>) {
    if (op == SegmentOp::kProd) return ReduceRow<SegmentOp::kProd, T>(to, row, count);
  } else {
    if (op == SegmentOp::kProd) return ReduceRow<SegmentOp::kProd, T>(to, row, count);
    if (op == SegmentOp::kMin) return ReduceRow<SegmentOp::kMin, T>(to, row, count);
    if (op == SegmentOp::kMax) return ReduceRow<SegmentOp::kMax, T>(to, row, count);
  }
  ReduceRow<SegmentOp::kSum, T>(to, row, count);
}

// What an unsorted segment without rows holds.
template <typename T>
Compute<T> SegmentStart(SegmentOp op) {
  using A = Compute<T>;
  if (op == SegmentOp::kProd) return A(1);
  if constexpr (std::is_same_v<T, Half>) {
    if (op == SegmentOp::kMin) return 65504.0f;
    if (op == SegmentOp::kMax) return -65504.0f;
  } else if constexpr (std::is_same_v<T, Bfloat16>) {
    const float largest = static_cast<float>(Bfloat16::FromBits(0x7F7F));
    if (op == SegmentOp::kMin) return largest;
    if (op == SegmentOp::kMax) return -largest;
  } else if constexpr (std::is_arithmetic_v<A>) {
    if (op == SegmentOp::kMin) return std::numeric_limits<A>::max();
    if (op == SegmentOp::kMax) return std::numeric_limits<A>::lowest();
  }
  return A(0);
}

// The elements of an int16, int32 or int64 tensor, widened.
std::vector<int64_t> WideIndices(const Tensor& tensor);

}  // namespace muster
