// Learning rates that change with the global step. Every number may also be a tensor or a variable;
// the result has the type of the learning rate. `name` is the scope's, "" TensorFlow's own.
#pragma once

#include <string>
#include <vector>

#include "muster/train/model/operand.h"

namespace muster {

// learning_rate * decay_rate ^ (step / decay_steps); the exponent is rounded down where
// `staircase` is set.
absl::StatusOr<Output> ExponentialDecay(const Scope& scope, const Operand& learning_rate,
                                        const Operand& global_step, const Operand& decay_steps,
                                        const Operand& decay_rate, bool staircase = false,
                                        absl::string_view name = "");
// learning_rate * exp(-decay_rate * step / decay_steps).
absl::StatusOr<Output> NaturalExpDecay(const Scope& scope, const Operand& learning_rate,
                                       const Operand& global_step, const Operand& decay_steps,
                                       const Operand& decay_rate, bool staircase = false,
                                       absl::string_view name = "");
// learning_rate / (1 + decay_rate * step / decay_steps).
absl::StatusOr<Output> InverseTimeDecay(const Scope& scope, const Operand& learning_rate,
                                        const Operand& global_step, const Operand& decay_steps,
                                        const Operand& decay_rate, bool staircase = false,
                                        absl::string_view name = "");

struct PolynomialDecayOptions {
  Operand end_learning_rate = 0.0001;
  Operand power = 1.0;
  bool cycle = false;  // start again with a longer period when one is over
  std::string name = {};
};
absl::StatusOr<Output> PolynomialDecay(const Scope& scope, const Operand& learning_rate,
                                       const Operand& global_step, const Operand& decay_steps,
                                       const PolynomialDecayOptions& options = {});

// values[i] while x is at most boundaries[i], the last value beyond. One value more than
// boundaries; InvalidArgument otherwise and where types differ.
absl::StatusOr<Output> PiecewiseConstant(const Scope& scope, const Operand& x,
                                         const std::vector<Operand>& boundaries,
                                         const std::vector<Operand>& values,
                                         absl::string_view name = "");

// Half a cosine from the learning rate to alpha times it.
absl::StatusOr<Output> CosineDecay(const Scope& scope, const Operand& learning_rate,
                                   const Operand& global_step, const Operand& decay_steps,
                                   const Operand& alpha = 0.0, absl::string_view name = "");

struct CosineRestartsOptions {
  Operand t_mul = 2.0;  // how much longer the next period is
  Operand m_mul = 1.0;  // and how much lower it starts
  Operand alpha = 0.0;
  std::string name = {};
};
absl::StatusOr<Output> CosineDecayRestarts(const Scope& scope, const Operand& learning_rate,
                                           const Operand& global_step,
                                           const Operand& first_decay_steps,
                                           const CosineRestartsOptions& options = {});

struct LinearCosineOptions {
  Operand num_periods = 0.5;
  Operand alpha = 0.0;
  Operand beta = 0.001;
  std::string name = {};
};
absl::StatusOr<Output> LinearCosineDecay(const Scope& scope, const Operand& learning_rate,
                                         const Operand& global_step, const Operand& decay_steps,
                                         const LinearCosineOptions& options = {});

struct NoisyLinearCosineOptions {
  Operand initial_variance = 1.0;
  Operand variance_decay = 0.55;
  LinearCosineOptions linear = {};
};
absl::StatusOr<Output> NoisyLinearCosineDecay(const Scope& scope, const Operand& learning_rate,
                                              const Operand& global_step,
                                              const Operand& decay_steps,
                                              const NoisyLinearCosineOptions& options = {});

}  // namespace muster
