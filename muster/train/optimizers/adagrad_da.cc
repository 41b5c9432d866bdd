#include "muster/train/optimizers/definition.h"

namespace muster {
namespace {

absl::Status CreateSums(DefinedOptimizer& adagrad, const Scope& scope,
                        absl::Span<const TrainVariable> variables) {
  const double initial = adagrad.Number("initial_gradient_squared_accumulator_value");
  for (const TrainVariable& variable : variables) {
    ASSIGN_OR_RETURN(const Output sum, FilledLike(scope, variable, 0));
    ASSIGN_OR_RETURN(const Output squares, FilledLike(scope, variable, initial));
    for (const auto& [slot, value] : {std::make_pair("gradient_accumulator", sum),
                                      std::make_pair("gradient_squared_accumulator", squares)}) {
      RETURN_IF_ERROR(
          adagrad.slots().GetOrMake(scope, variable, {slot, adagrad.name(), value}).status());
    }
  }
  return absl::OkStatus();
}

// The learning rate, and beside it the number of the step that is being taken.
absl::Status PrepareStep(DefinedOptimizer& adagrad, const Scope& scope) {
  ASSIGN_OR_RETURN(const Operand given_rate, adagrad.GetValue("learning_rate"));
  const Output rate = Convert(scope, given_rate, "learning_rate");
  RETURN_IF_ERROR(scope.status());
  RETURN_IF_ERROR(adagrad.SetTensor("learning_rate", rate));
  ASSIGN_OR_RETURN(const Operand global_step, adagrad.GetValue("global_step"));
  const Scope beside = scope.ColocatedWith(*rate.node);
  const Output step = CallOpOutput(beside, "Identity", {{"input", global_step}});
  RETURN_IF_ERROR(adagrad.SetTensor("global_step", Plus(beside, step, Operand(1))));
  return scope.status();
}

absl::StatusOr<DefinedOptimizer::Arguments> StepArguments(const DefinedOptimizer& adagrad,
                                                          const Scope& scope, DType dtype) {
  ASSIGN_OR_RETURN(const Output step_taken, adagrad.GetTensor("global_step"));
  ASSIGN_OR_RETURN(const Operand given_l1, adagrad.GetValue("l1_regularization_strength"));
  ASSIGN_OR_RETURN(const Operand given_l2, adagrad.GetValue("l2_regularization_strength"));
  const Output step = scope.Op("Identity", {step_taken});
  const Output rate = adagrad.Hyper(scope, "learning_rate", dtype);
  const Output l1 = CastToOutput(scope, given_l1, dtype);
  const Output l2 = CastToOutput(scope, given_l2, dtype);
  RETURN_IF_ERROR(scope.status());
  return DefinedOptimizer::Arguments{{"lr", rate}, {"l1", l1}, {"l2", l2}, {"global_step", step}};
}

}  // namespace

DEFINE_OPTIMIZER(AdagradDA) {
  optimizer
      .Doc(
          "Adagrad with dual averaging, for sparse linear models: rows that a step does not touch "
          "are regularized when they are next used.")
      .Tensor("learning_rate", kRequired, "The learning rate.")
      .Tensor("global_step", kRequired, "The step of the training.")
      .Number("initial_gradient_squared_accumulator_value", 0.1,
              "Where the sums of squares start; above 0.")
      .Tensor("l1_regularization_strength", 0.0, "At least 0.")
      .Tensor("l2_regularization_strength", 0.0, "At least 0.")
      .Check([](const DefinedOptimizer& adagrad) {
        return CheckPositive(adagrad, "initial_gradient_squared_accumulator_value");
      })
      .Rule({.op = "AdagradDA",
             .slots = {{"gradient_accumulator", "gradient_accumulator"},
                       {"gradient_squared_accumulator", "gradient_squared_accumulator"}}})
      .CreateSlots(CreateSums)
      .Prepare(PrepareStep)
      .Arguments(StepArguments);
}

}  // namespace muster
