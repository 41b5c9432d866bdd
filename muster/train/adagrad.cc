#include "muster/train/adagrad.h"

#include <utility>

namespace muster {

AdagradOptimizer::AdagradOptimizer(Operand learning_rate, AdagradOptions options)
    : ApplyOpOptimizer(std::move(options.name), options.use_locking) {
  AddHyperparameter("learning_rate", std::move(learning_rate));
  op_ = "Adagrad";
  slots_ = {{"accumulator", "accum", SlotSpec::Filled{options.initial_accumulator_value}}};
  hypers_ = {{"learning_rate", "lr"}};
}

AdagradDAOptimizer::AdagradDAOptimizer(Operand learning_rate, Operand global_step,
                                       AdagradDAOptions options)
    : ApplyOpOptimizer(std::move(options.name), options.use_locking),
      initial_value_(options.initial_gradient_squared_accumulator_value),
      global_step_(std::move(global_step)),
      l1_(std::move(options.l1_regularization_strength)),
      l2_(std::move(options.l2_regularization_strength)) {
  AddHyperparameter("learning_rate", std::move(learning_rate));
  op_ = "AdagradDA";
  for (const char* slot : {"gradient_accumulator", "gradient_squared_accumulator"}) {
    slots_.push_back({slot, slot, SlotSpec::Zeros()});
  }
}

absl::Status AdagradDAOptimizer::CreateSlots(const Scope& scope,
                                             absl::Span<const TrainVariable> variables) {
  for (const TrainVariable& variable : variables) {
    ASSIGN_OR_RETURN(const Output sum, FilledLike(scope, variable, 0));
    ASSIGN_OR_RETURN(const Output squares, FilledLike(scope, variable, initial_value_));
    RETURN_IF_ERROR(
        slots().GetOrMake(scope, variable, {"gradient_accumulator", name(), sum}).status());
    RETURN_IF_ERROR(
        slots()
            .GetOrMake(scope, variable, {"gradient_squared_accumulator", name(), squares})
            .status());
  }
  return absl::OkStatus();
}

absl::Status AdagradDAOptimizer::Prepare(const Scope& scope) {
  RETURN_IF_ERROR(Optimizer::Prepare(scope));
  return PrepareStep(scope, global_step_);
}

absl::Status AdagradDAOptimizer::PrepareStep(const Scope& scope, const Operand& global_step) {
  ASSIGN_OR_RETURN(const Output learning_rate, GetTensor("learning_rate"));
  if (!learning_rate) return FailedPrecondition("Optimizer ", name(), " has no learning rate yet");
  const Scope beside = scope.ColocatedWith(*learning_rate.node);
  const Output step = CallOpOutput(beside, "Identity", {{"input", global_step}});
  step_taken_ = Plus(beside, step, Operand(1));
  return scope.status();
}

absl::StatusOr<ApplyOpOptimizer::Arguments> AdagradDAOptimizer::Numbers(const Scope& scope,
                                                                        DType dtype) {
  const Output step = scope.Op("Identity", {step_taken_});
  const Output learning_rate = Hyper(scope, "learning_rate", dtype);
  const Output l1 = CastToOutput(scope, l1_, dtype);
  const Output l2 = CastToOutput(scope, l2_, dtype);
  RETURN_IF_ERROR(scope.status());
  return Arguments{{"lr", learning_rate}, {"l1", l1}, {"l2", l2}, {"global_step", step}};
}

}  // namespace muster
