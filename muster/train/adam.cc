#include "muster/train/adam.h"

#include <algorithm>
#include <utility>

namespace muster {

AdamOptimizer::AdamOptimizer(Operand learning_rate, AdamOptions options)
    : ApplyOpOptimizer(std::move(options.name), options.use_locking) {
  AddHyperparameter("learning_rate", std::move(learning_rate));
  AddHyperparameter("beta1", std::move(options.beta1));
  AddHyperparameter("beta2", std::move(options.beta2));
  AddHyperparameter("epsilon", std::move(options.epsilon));
  op_ = "Adam";
  slots_ = {{"m", "m", SlotSpec::Zeros()}, {"v", "v", SlotSpec::Zeros()}};
  hypers_ = {
      {"learning_rate", "lr"}, {"beta1", "beta1"}, {"beta2", "beta2"}, {"epsilon", "epsilon"}};
}

absl::Status AdamOptimizer::CreateSlots(const Scope& scope,
                                        absl::Span<const TrainVariable> variables) {
  // The powers lie with the variable whose tensor comes first by name, whatever the order here.
  const auto first = std::min_element(variables.begin(), variables.end(),
                                      [](const TrainVariable& a, const TrainVariable& b) {
                                        return a.handle.name() < b.handle.name();
                                      });
  for (const char* beta : {"beta1", "beta2"}) {
    const auto hyper =
        std::find_if(hyperparameters().begin(), hyperparameters().end(),
                     [&](const Hyperparameter& candidate) { return candidate.name == beta; });
    RETURN_IF_ERROR(slots()
                        .GetOrMakeShared(scope, absl::StrCat(beta, "_power"), hyper->value, *first)
                        .status());
  }
  return ApplyOpOptimizer::CreateSlots(scope, variables);
}

absl::StatusOr<ApplyOpOptimizer::Arguments> AdamOptimizer::Numbers(const Scope& scope,
                                                                   DType dtype) {
  Arguments numbers;
  for (const char* power : {"beta1_power", "beta2_power"}) {
    ASSIGN_OR_RETURN(const TrainVariable variable, slots().GetShared(scope.graph(), power));
    numbers.emplace_back(power, Cast(scope, variable, dtype));
  }
  ASSIGN_OR_RETURN(const Arguments hypers, ApplyOpOptimizer::Numbers(scope, dtype));
  numbers.insert(numbers.end(), hypers.begin(), hypers.end());
  return numbers;
}

absl::StatusOr<Output> AdamOptimizer::DecayAndAdd(const Scope& scope, const TrainVariable& slot,
                                                  Output beta, Output rows, Output indices) {
  const Assigned decayed = Assign(scope, slot, Times(scope, slot, beta), "Assign", use_locking());
  RETURN_IF_ERROR(scope.status());
  const Scope after = scope.WithControlDependencies({decayed.node});
  if (!slot.is_resource) {
    return CallOpOutput(after, "ScatterAdd",
                        {{"ref", slot}, {"indices", indices}, {"updates", rows}},
                        {{"use_locking", use_locking()}});
  }
  Node* added = CallOp(after, "ResourceScatterAdd",
                       {{"resource", slot}, {"indices", indices}, {"updates", rows}},
                       {{"dtype", slot.dtype}});
  RETURN_IF_ERROR(scope.status());
  return Value(after.WithControlDependencies({added}), slot);
}

absl::StatusOr<Node*> AdamOptimizer::ApplySparse(const Scope& scope, const IndexedSlices& gradient,
                                                 const TrainVariable& variable) {
  ASSIGN_OR_RETURN(const Arguments numbers, Numbers(scope, variable.dtype));
  const auto number = [&](absl::string_view name) -> const Operand& {
    return std::find_if(numbers.begin(), numbers.end(),
                        [&](const auto& candidate) { return candidate.first == name; })
        ->second;
  };
  const Output root = scope.Op("Sqrt", {Minus(scope, Operand(1), number("beta2_power"))});
  const Output scaled = Times(scope, number("lr"), root);
  const Output rate = Over(scope, scaled, Minus(scope, Operand(1), number("beta1_power")));

  ASSIGN_OR_RETURN(const TrainVariable m, slots().Get(variable, "m"));
  const Output m_rows = Times(scope, gradient.values, Minus(scope, Operand(1), number("beta1")));
  ASSIGN_OR_RETURN(const Output m_now,
                   DecayAndAdd(scope, m, *number("beta1").output(), m_rows, gradient.indices));

  ASSIGN_OR_RETURN(const TrainVariable v, slots().Get(variable, "v"));
  const Output squares = Times(scope, gradient.values, gradient.values);
  const Output v_rows = Times(scope, squares, Minus(scope, Operand(1), number("beta2")));
  ASSIGN_OR_RETURN(const Output v_now,
                   DecayAndAdd(scope, v, *number("beta2").output(), v_rows, gradient.indices));

  const Output v_root = scope.Op("Sqrt", {v_now});
  const Output step = Times(scope, rate, m_now);
  const Output delta = Over(scope, step, Plus(scope, v_root, number("epsilon")));
  const Assigned updated = Assign(scope, variable, delta, "AssignSub", use_locking());
  RETURN_IF_ERROR(scope.status());
  return Group(scope, {updated.node, m_now.node, v_now.node});
}

absl::StatusOr<Node*> AdamOptimizer::Finish(const Scope& scope, absl::Span<Node* const> updates,
                                            absl::string_view name) {
  std::vector<Node*> all(updates.begin(), updates.end());
  ASSIGN_OR_RETURN(const TrainVariable beta1_power,
                   slots().GetShared(scope.graph(), "beta1_power"));
  ASSIGN_OR_RETURN(const TrainVariable beta2_power,
                   slots().GetShared(scope.graph(), "beta2_power"));
  const Scope after = scope.WithControlDependencies(updates).ColocatedWith(beta1_power.node());
  for (const auto& [power, beta] :
       {std::make_pair(beta1_power, "beta1"), std::make_pair(beta2_power, "beta2")}) {
    ASSIGN_OR_RETURN(const Output factor, GetTensor(beta));
    all.push_back(Assign(after, power, Times(after, power, factor), "Assign", use_locking()).node);
  }
  RETURN_IF_ERROR(after.status());
  return Group(scope, all, name);
}

}  // namespace muster
