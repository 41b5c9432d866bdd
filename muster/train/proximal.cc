#include "muster/train/proximal.h"

#include <utility>

namespace muster {

ProximalGradientDescentOptimizer::ProximalGradientDescentOptimizer(
    Operand learning_rate, ProximalGradientDescentOptions options)
    : ApplyOpOptimizer(std::move(options.name), options.use_locking) {
  AddHyperparameter("learning_rate", std::move(learning_rate));
  AddHyperparameter("l1_regularization_strength", std::move(options.l1_regularization_strength));
  AddHyperparameter("l2_regularization_strength", std::move(options.l2_regularization_strength));
  op_ = "ProximalGradientDescent";
  hypers_ = {{"learning_rate", "alpha"},
             {"l1_regularization_strength", "l1"},
             {"l2_regularization_strength", "l2"}};
  dense_gradient_ = "delta";
}

ProximalAdagradOptimizer::ProximalAdagradOptimizer(Operand learning_rate,
                                                   ProximalAdagradOptions options)
    : ApplyOpOptimizer(std::move(options.name), options.use_locking),
      initial_value_(options.initial_accumulator_value) {
  AddHyperparameter("learning_rate", std::move(learning_rate));
  AddHyperparameter("l1_regularization_strength", std::move(options.l1_regularization_strength));
  AddHyperparameter("l2_regularization_strength", std::move(options.l2_regularization_strength));
  op_ = "ProximalAdagrad";
  slots_ = {{"accumulator", "accum", SlotSpec::Zeros()}};
  hypers_ = {{"learning_rate", "lr"},
             {"l1_regularization_strength", "l1"},
             {"l2_regularization_strength", "l2"}};
}

absl::Status ProximalAdagradOptimizer::CreateSlots(const Scope& scope,
                                                   absl::Span<const TrainVariable> variables) {
  for (const TrainVariable& variable : variables) {
    ASSIGN_OR_RETURN(const Output filled, FilledLike(scope, variable, initial_value_));
    RETURN_IF_ERROR(slots().GetOrMake(scope, variable, {"accumulator", name(), filled}).status());
  }
  return absl::OkStatus();
}

}  // namespace muster
