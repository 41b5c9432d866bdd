#include "muster/train/optimizers/definition.h"

namespace muster {
namespace {

absl::Status CreateAccumulators(DefinedOptimizer& adagrad, const Scope& scope,
                                absl::Span<const TrainVariable> variables) {
  const double initial = adagrad.Number("initial_accumulator_value");
  for (const TrainVariable& variable : variables) {
    ASSIGN_OR_RETURN(const Output filled, FilledLike(scope, variable, initial));
    RETURN_IF_ERROR(adagrad.slots()
                        .GetOrMake(scope, variable, {"accumulator", adagrad.name(), filled})
                        .status());
  }
  return absl::OkStatus();
}

}  // namespace

DEFINE_OPTIMIZER(ProximalAdagrad) {
  optimizer.Doc("Adagrad with proximal l1 and l2 terms.")
      .Tensor("learning_rate", kRequired, "The learning rate.")
      .Number("initial_accumulator_value", 0.1, "Where the sums of squares start; above 0.")
      .Tensor("l1_regularization_strength", 0.0, "At least 0.")
      .Tensor("l2_regularization_strength", 0.0, "At least 0.")
      .Check([](const DefinedOptimizer& adagrad) {
        return CheckPositive(adagrad, "initial_accumulator_value");
      })
      .Rule({.op = "ProximalAdagrad",
             .slots = {{"accumulator", "accum"}},
             .hypers = {{"learning_rate", "lr"},
                        {"l1_regularization_strength", "l1"},
                        {"l2_regularization_strength", "l2"}}})
      .CreateSlots(CreateAccumulators);
}

}  // namespace muster
