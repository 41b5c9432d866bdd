#include "absl/strings/str_format.h"

#include "muster/train/optimizers/definition.h"

namespace muster {
namespace {

absl::Status CheckFtrl(const DefinedOptimizer& ftrl) {
  if (const double initial = ftrl.Number("initial_accumulator_value"); initial < 0) {
    return InvalidArgument(
        absl::StrFormat("initial_accumulator_value %f needs to be positive or zero", initial));
  }
  if (const double power = ftrl.Number("learning_rate_power"); power > 0) {
    return InvalidArgument(
        absl::StrFormat("learning_rate_power %f needs to be negative or zero", power));
  }
  for (const char* which : {"l1", "l2", "l2_shrinkage"}) {
    const std::string parameter = absl::StrCat(which, "_regularization_strength");
    if (const double strength = ftrl.Number(parameter); strength < 0) {
      return InvalidArgument(
          absl::StrFormat("%s %f needs to be positive or zero", parameter, strength));
    }
  }
  return absl::OkStatus();
}

ApplyRule FtrlRule(const DefinedOptimizer& ftrl) {
  const bool shrinks = ftrl.Number("l2_shrinkage_regularization_strength") > 0;
  return {.op = shrinks ? "FtrlV2" : "Ftrl",
          .slots = {{"accum", "accum"}, {"linear", "linear"}},
          .hypers = {{"learning_rate", "lr"},
                     {"l1_regularization_strength", "l1"},
                     {"l2_regularization_strength", "l2"},
                     {"l2_shrinkage_regularization_strength", shrinks ? "l2_shrinkage" : ""},
                     {"learning_rate_power", "lr_power"}}};
}

absl::Status CreateFtrlSlots(DefinedOptimizer& ftrl, const Scope& scope,
                             absl::Span<const TrainVariable> variables) {
  const std::string accum_name = ftrl.Text("accum_name");
  const std::string linear_name = ftrl.Text("linear_name");
  for (const TrainVariable& variable : variables) {
    ASSIGN_OR_RETURN(const Output filled,
                     FilledLike(scope, variable, ftrl.Number("initial_accumulator_value")));
    const SlotSpec accum{"accum", accum_name.empty() ? ftrl.name() : accum_name, filled};
    RETURN_IF_ERROR(
        ftrl.slots().GetOrMake(scope.ColocatedWith(variable.node()), variable, accum).status());
  }
  for (const TrainVariable& variable : variables) {
    const SlotSpec linear{"linear", linear_name.empty() ? ftrl.name() : linear_name,
                          SlotSpec::Zeros()};
    RETURN_IF_ERROR(ftrl.slots().GetOrMake(scope, variable, linear).status());
  }
  return absl::OkStatus();
}

}  // namespace

DEFINE_OPTIMIZER(Ftrl) {
  optimizer
      .Doc(
          "FTRL-Proximal: follow the regularized leader, for sparse models with l1 "
          "regularization.")
      .Tensor("learning_rate", kRequired, "The learning rate.")
      .Number("learning_rate_power", -0.5,
              "How the learning rate falls with the sum of squared gradients; at most 0, which "
              "keeps it.")
      .WithTensor()
      .Number("initial_accumulator_value", 0.1, "Where the sums of squares start; at least 0.")
      .Number("l1_regularization_strength", 0.0, "At least 0.")
      .WithTensor()
      .Number("l2_regularization_strength", 0.0, "At least 0.")
      .WithTensor()
      .UseLocking()
      .Name()
      .Text("accum_name", "The name of the slots of the sums of squares; `name` where not given.")
      .Text("linear_name", "The name of the slots of the linear terms; `name` where not given.")
      .Number(
          "l2_shrinkage_regularization_strength", 0.0,
          "At least 0. Unlike the l2 term, which is part of the loss, it shrinks variables with "
          "every step.")
      .WithTensor()
      .Check(CheckFtrl)
      .Rule(FtrlRule)
      .CreateSlots(CreateFtrlSlots);
}

}  // namespace muster
