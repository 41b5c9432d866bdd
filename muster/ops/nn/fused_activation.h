// Activations that graph rewriting has joined with the op before them.
#pragma once

#include <cmath>

#include "absl/strings/string_view.h"

#include "muster/base/status.h"
#include "muster/ops/nn/exponential.h"

namespace muster {

enum class Activation : uint8_t { kNone, kRelu, kRelu6, kElu, kLeakyRelu, kTanh, kSigmoid };

inline absl::StatusOr<Activation> ActivationFrom(absl::string_view name) {
  if (name == "Relu") return Activation::kRelu;
  if (name == "Relu6") return Activation::kRelu6;
  if (name == "Elu") return Activation::kElu;
  if (name == "LeakyRelu") return Activation::kLeakyRelu;
  if (name == "Tanh") return Activation::kTanh;
  if (name == "Sigmoid") return Activation::kSigmoid;
  return Unimplemented("Fusion is not implemented: activation ", name);
}

template <typename V>
void Activate(Activation activation, V alpha, V* row, int64_t n) {
  switch (activation) {
    case Activation::kNone:
      return;
    case Activation::kRelu:
      for (int64_t i = 0; i < n; ++i) row[i] = row[i] < V(0) ? V(0) : row[i];
      return;
    case Activation::kRelu6:
      for (int64_t i = 0; i < n; ++i) row[i] = row[i] < V(0) ? V(0) : row[i] > V(6) ? V(6) : row[i];
      return;
    case Activation::kElu:
      for (int64_t i = 0; i < n; ++i) row[i] = row[i] < V(0) ? Exponential(row[i]) - V(1) : row[i];
      return;
    case Activation::kLeakyRelu:
      for (int64_t i = 0; i < n; ++i) row[i] = row[i] > V(0) ? row[i] : row[i] * alpha;
      return;
    case Activation::kTanh:
      for (int64_t i = 0; i < n; ++i) row[i] = std::tanh(row[i]);
      return;
    case Activation::kSigmoid:
      for (int64_t i = 0; i < n; ++i) row[i] = V(1) / (V(1) + Exponential(-row[i]));
      return;
  }
}

}  // namespace muster
