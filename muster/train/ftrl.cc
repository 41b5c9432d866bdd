#include "muster/train/ftrl.h"

#include <utility>

namespace muster {

FtrlOptimizer::FtrlOptimizer(Operand learning_rate, FtrlOptions options)
    : ApplyOpOptimizer(options.name, options.use_locking),
      initial_value_(options.initial_accumulator_value),
      accum_name_(options.accum_name.empty() ? options.name : options.accum_name),
      linear_name_(options.linear_name.empty() ? options.name : options.linear_name) {
  AddHyperparameter("learning_rate", std::move(learning_rate));
  AddHyperparameter("l1_regularization_strength", options.l1_regularization_strength);
  AddHyperparameter("l2_regularization_strength", options.l2_regularization_strength);
  AddHyperparameter("l2_shrinkage_regularization_strength",
                    options.l2_shrinkage_regularization_strength);
  AddHyperparameter("learning_rate_power", options.learning_rate_power);
  const bool shrinks = options.l2_shrinkage_regularization_strength > 0;
  op_ = shrinks ? "FtrlV2" : "Ftrl";
  slots_ = {{"accum", "accum", SlotSpec::Zeros()}, {"linear", "linear", SlotSpec::Zeros()}};
  hypers_ = {{"learning_rate", "lr"},
             {"l1_regularization_strength", "l1"},
             {"l2_regularization_strength", "l2"}};
  if (shrinks) hypers_.push_back({"l2_shrinkage_regularization_strength", "l2_shrinkage"});
  hypers_.push_back({"learning_rate_power", "lr_power"});
}

absl::Status FtrlOptimizer::CreateSlots(const Scope& scope,
                                        absl::Span<const TrainVariable> variables) {
  for (const TrainVariable& variable : variables) {
    ASSIGN_OR_RETURN(const Output filled, FilledLike(scope, variable, initial_value_));
    RETURN_IF_ERROR(slots()
                        .GetOrMake(scope.ColocatedWith(variable.node()), variable,
                                   {"accum", accum_name_, filled})
                        .status());
  }
  for (const TrainVariable& variable : variables) {
    RETURN_IF_ERROR(
        slots().GetOrMake(scope, variable, {"linear", linear_name_, SlotSpec::Zeros()}).status());
  }
  return absl::OkStatus();
}

}  // namespace muster
