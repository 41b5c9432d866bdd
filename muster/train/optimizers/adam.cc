#include <algorithm>

#include "muster/train/optimizers/definition.h"

namespace muster {
namespace {

using AdamArguments = DefinedOptimizer::Arguments;

// beta1 and beta2 to the power of the step, and the averages of every variable.
absl::Status CreateAdamSlots(DefinedOptimizer& adam, const Scope& scope,
                             absl::Span<const TrainVariable> variables) {
  // The powers are placed with the variable whose tensor comes first by name, whatever the order
  // here.
  const auto first = std::min_element(variables.begin(), variables.end(),
                                      [](const TrainVariable& a, const TrainVariable& b) {
                                        return a.handle.name() < b.handle.name();
                                      });
  for (const char* beta : {"beta1", "beta2"}) {
    ASSIGN_OR_RETURN(const Operand initial, adam.GetValue(beta));
    RETURN_IF_ERROR(
        adam.slots()
            .GetOrMakeShared(scope, {absl::StrCat(beta, "_power"), beta, initial}, *first)
            .status());
  }
  return adam.CreateSlotsOfRule(scope, variables);
}

absl::StatusOr<AdamArguments> PowersAndHypers(const DefinedOptimizer& adam, const Scope& scope,
                                              DType dtype) {
  AdamArguments arguments;
  for (const char* power : {"beta1_power", "beta2_power"}) {
    ASSIGN_OR_RETURN(const TrainVariable variable, adam.slots().GetShared(scope.graph(), power));
    arguments.emplace_back(power, Cast(scope, variable, dtype));
  }
  ASSIGN_OR_RETURN(const AdamArguments hypers, adam.HyperArguments(scope, dtype));
  arguments.insert(arguments.end(), hypers.begin(), hypers.end());
  return arguments;
}

// slot = slot * beta, then `rows` added at the indices.
absl::StatusOr<Output> DecayAndAdd(const Scope& scope, const TrainVariable& slot, Output beta,
                                   Output rows, Output indices, bool use_locking) {
  const Assigned decayed = Assign(scope, slot, Times(scope, slot, beta), "Assign", use_locking);
  RETURN_IF_ERROR(scope.status());
  const Scope after = scope.WithControlDependencies({decayed.node});
  if (!slot.is_resource) {
    return CallOpOutput(after, "ScatterAdd",
                        {{"ref", slot}, {"indices", indices}, {"updates", rows}},
                        {{"use_locking", use_locking}});
  }
  Node* added = CallOp(after, "ResourceScatterAdd",
                       {{"resource", slot}, {"indices", indices}, {"updates", rows}},
                       {{"dtype", slot.dtype}});
  RETURN_IF_ERROR(scope.status());
  return Value(after.WithControlDependencies({added}), slot);
}

// All rows decay, those of the gradient get their share.
absl::StatusOr<Node*> ApplyAdamRows(DefinedOptimizer& adam, const Scope& scope,
                                    const IndexedSlices& gradient, const TrainVariable& variable) {
  ASSIGN_OR_RETURN(const AdamArguments numbers, adam.OpArguments(scope, variable.dtype));
  const auto number = [&](absl::string_view name) -> const Operand& {
    return std::find_if(numbers.begin(), numbers.end(),
                        [&](const auto& candidate) { return candidate.first == name; })
        ->second;
  };
  const Output root = scope.Op("Sqrt", {Minus(scope, Operand(1), number("beta2_power"))});
  const Output scaled = Times(scope, number("lr"), root);
  const Output rate = Over(scope, scaled, Minus(scope, Operand(1), number("beta1_power")));

  ASSIGN_OR_RETURN(const TrainVariable m, adam.Slot(variable, "m"));
  const Output m_rows = Times(scope, gradient.values, Minus(scope, Operand(1), number("beta1")));
  ASSIGN_OR_RETURN(const Output m_now, DecayAndAdd(scope, m, *number("beta1").output(), m_rows,
                                                   gradient.indices, adam.use_locking()));

  ASSIGN_OR_RETURN(const TrainVariable v, adam.Slot(variable, "v"));
  const Output squares = Times(scope, gradient.values, gradient.values);
  const Output v_rows = Times(scope, squares, Minus(scope, Operand(1), number("beta2")));
  ASSIGN_OR_RETURN(const Output v_now, DecayAndAdd(scope, v, *number("beta2").output(), v_rows,
                                                   gradient.indices, adam.use_locking()));

  const Output v_root = scope.Op("Sqrt", {v_now});
  const Output step = Times(scope, rate, m_now);
  const Output delta = Over(scope, step, Plus(scope, v_root, number("epsilon")));
  const Assigned updated = Assign(scope, variable, delta, "AssignSub", adam.use_locking());
  RETURN_IF_ERROR(scope.status());
  return Group(scope, {updated.node, m_now.node, v_now.node});
}

// The powers of the betas move on when every variable has used them.
absl::StatusOr<Node*> AdvancePowers(DefinedOptimizer& adam, const Scope& scope,
                                    absl::Span<Node* const> updates, absl::string_view name) {
  std::vector<Node*> all(updates.begin(), updates.end());
  ASSIGN_OR_RETURN(const TrainVariable beta1_power,
                   adam.slots().GetShared(scope.graph(), "beta1_power"));
  ASSIGN_OR_RETURN(const TrainVariable beta2_power,
                   adam.slots().GetShared(scope.graph(), "beta2_power"));
  const Scope after = scope.WithControlDependencies(updates).ColocatedWith(beta1_power.node());
  for (const auto& [power, beta] :
       {std::make_pair(beta1_power, "beta1"), std::make_pair(beta2_power, "beta2")}) {
    ASSIGN_OR_RETURN(const Output factor, adam.GetTensor(beta));
    const Output next = Times(after, power, factor);
    all.push_back(Assign(after, power, next, "Assign", adam.use_locking()).node);
  }
  RETURN_IF_ERROR(after.status());
  return Group(scope, all, name);
}

}  // namespace

DEFINE_OPTIMIZER(Adam) {
  optimizer
      .Doc(
          "Adam: averages of gradients and of their squares, both corrected for starting at zero. "
          "Sparse gradients decay the averages of all rows.")
      .Tensor("learning_rate", 0.001, "The learning rate.")
      .KeptAs("_lr", "_lr_t")
      .Tensor("beta1", 0.9, "The decay of the average of gradients.")
      .KeptAs("_beta1", "_beta1_t")
      .Tensor("beta2", 0.999, "The decay of the average of squared gradients.")
      .KeptAs("_beta2", "_beta2_t")
      .Tensor("epsilon", 1e-8, "Added to the root of the average of squares (\"epsilon hat\").")
      .KeptAs("_epsilon", "_epsilon_t")
      .Rule({.op = "Adam",
             .slots = {{"m", "m"}, {"v", "v"}},
             .hypers = {{"learning_rate", "lr"},
                        {"beta1", "beta1"},
                        {"beta2", "beta2"},
                        {"epsilon", "epsilon"}}})
      .CreateSlots(CreateAdamSlots)
      .Arguments(PowersAndHypers)
      .Sparse(ApplyAdamRows)
      .Finish(AdvancePowers);
}

}  // namespace muster
