// Element arithmetic of ops that change variables. Integers wrap around; 16-bit floats are computed
// in float.
#pragma once

#include <algorithm>
#include <type_traits>

#include "muster/tensor/dtype.h"

namespace muster {

enum class Change { kAdd, kSub, kMul, kDiv, kMin, kMax };

// What it is called in change.cu.
inline const char* GpuChangeName(Change change) {
  static constexpr const char* kNames[] = {"Add", "Sub", "Mul", "Div", "Min", "Max"};
  return kNames[static_cast<int>(change)];
}

template <Change kChange, typename C>
C Combine(C a, C b) {
  if constexpr (kChange == Change::kMin) {
    return std::min(a, b);
  } else if constexpr (kChange == Change::kMax) {
    return std::max(a, b);
  } else if constexpr (std::is_integral_v<C> && !std::is_same_v<C, bool> &&
                       kChange != Change::kDiv) {
    // Unsigned and at least as wide as int, so that nothing overflows in the language's sense.
    using Wide = std::conditional_t<sizeof(C) == 8, uint64_t, uint32_t>;
    const Wide x = static_cast<Wide>(a);
    const Wide y = static_cast<Wide>(b);
    return static_cast<C>(kChange == Change::kAdd   ? x + y
                          : kChange == Change::kSub ? x - y
                                                    : x * y);
  } else if constexpr (std::is_integral_v<C> && std::is_signed_v<C>) {
    return b == -1 ? static_cast<C>(0 - static_cast<uint64_t>(a)) : static_cast<C>(a / b);
  } else if constexpr (kChange == Change::kAdd) {
    return static_cast<C>(a + b);
  } else if constexpr (kChange == Change::kSub) {
    return static_cast<C>(a - b);
  } else if constexpr (kChange == Change::kMul) {
    return static_cast<C>(a * b);
  } else {
    return static_cast<C>(a / b);
  }
}

// to[i] = to[i] <change> from[i].
template <Change kChange, typename T>
void CombineElements(T* __restrict to, const T* __restrict from, int64_t count) {
  using C = Compute<T>;
  for (int64_t i = 0; i < count; ++i)
    to[i] = T(Combine<kChange>(static_cast<C>(to[i]), static_cast<C>(from[i])));
}
// The same with one value for all.
template <Change kChange, typename T>
void CombineScalar(T* __restrict to, T value, int64_t count) {
  using C = Compute<T>;
  const C from = static_cast<C>(value);
  for (int64_t i = 0; i < count; ++i) to[i] = T(Combine<kChange>(static_cast<C>(to[i]), from));
}

}  // namespace muster
