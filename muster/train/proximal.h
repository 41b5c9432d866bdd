// Gradient descent and Adagrad with proximal l1 and l2 terms.
#pragma once

#include "muster/train/apply_op.h"

namespace muster {

struct ProximalGradientDescentOptions {
  Operand l1_regularization_strength = 0.0;
  Operand l2_regularization_strength = 0.0;
  bool use_locking = false;
  std::string name = "ProximalGradientDescent";
};

class ProximalGradientDescentOptimizer : public ApplyOpOptimizer {
 public:
  explicit ProximalGradientDescentOptimizer(Operand learning_rate,
                                            ProximalGradientDescentOptions options = {});
};

struct ProximalAdagradOptions {
  double initial_accumulator_value = 0.1;  // above 0
  Operand l1_regularization_strength = 0.0;
  Operand l2_regularization_strength = 0.0;
  bool use_locking = false;
  std::string name = "ProximalAdagrad";
};

class ProximalAdagradOptimizer : public ApplyOpOptimizer {
 public:
  explicit ProximalAdagradOptimizer(Operand learning_rate, ProximalAdagradOptions options = {});
  absl::Status CreateSlots(const Scope& scope, absl::Span<const TrainVariable> variables) override;

 private:
  const double initial_value_;
};

}  // namespace muster
