// The arithmetic of one row of logits, shared by softmax and the cross entropies.
#pragma once

#include <cmath>
#include <cstdint>

#include "muster/ops/nn/exponential.h"
#include "muster/tensor/dtype.h"

namespace muster {

template <typename T>
Compute<T> RowMaximum(const T* row, int64_t n) {
  using V = Compute<T>;
  V maximum = static_cast<V>(row[0]);
  for (int64_t i = 1; i < n; ++i) {
    const V x = static_cast<V>(row[i]);
    maximum = maximum < x ? x : maximum;
  }
  return maximum;
}

// to[i] = e^(row[i] - shift) in the computing type; gives their sum. Requires: `to` does not
// overlap `row`.
template <typename T>
Compute<T> RowExponentials(const T* __restrict row, int64_t n, Compute<T> shift,
                           Compute<T>* __restrict to) {
  using V = Compute<T>;
  for (int64_t i = 0; i < n; ++i) to[i] = Exponential(static_cast<V>(row[i]) - shift);
  // Several sums side by side: quick, and the order depends on n alone.
  constexpr int64_t kLanes = 8;
  V lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += to[i + lane];
  }
  V sum = V(0);
  for (V lane : lanes) sum += lane;
  for (; i < n; ++i) sum += to[i];
  return sum;
}

}  // namespace muster
