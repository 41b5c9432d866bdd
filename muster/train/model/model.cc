#include "muster/train/model/model.h"

#include <string>
#include <utility>

#include "muster/graph/build/emit.h"

namespace muster {

TrainVariable Model::AddVariable(const Scope& scope, absl::string_view name,
                                 const InitialValue& initial, const VariableOptions& options) {
  absl::StatusOr<TrainVariable> variable = MakeVariable(scope, name, initial, options);
  if (!variable.ok()) {
    scope.UpdateStatus(variable.status());
    return {};
  }
  variables.push_back(*variable);
  trainable.push_back(*variable);
  return *std::move(variable);
}

TrainVariable Model::AddGlobalStep(const Scope& scope) {
  absl::StatusOr<TrainVariable> step = MakeGlobalStep(scope);
  if (!step.ok()) {
    scope.UpdateStatus(step.status());
    return {};
  }
  variables.push_back(*step);
  global_step = *step;
  return *std::move(step);
}

Output Model::AddScalarSummary(const Scope& scope, absl::string_view name, Output value) {
  const Scope own = scope.NameScope(name);
  const std::string tag = own.prefix().substr(0, own.prefix().size() - 1);
  const Output tags = own.Const(Tensor::Scalar<std::string>(tag), "tags");
  const Output summary = OpNamed(own, "ScalarSummary", {tags, value});
  if (summary) summaries.push_back(summary);
  return summary;
}

absl::StatusOr<Node*> Model::Minimize(const Scope& scope, Output loss, Optimizer& optimizer,
                                      const MinimizeOptions& options) {
  RETURN_IF_ERROR(scope.status());
  ApplyOptions apply;
  apply.global_step = global_step;
  ASSIGN_OR_RETURN(const std::vector<GradientAndVariable> gradients,
                   optimizer.ComputeGradients(scope, loss, trainable, options.compute));
  if ((options.sync.has_value() || options.all_reduce.has_value()) && !global_step.has_value()) {
    return FailedPrecondition("Training in step needs a global step: call AddGlobalStep");
  }
  const auto apply_with = [&](Optimizer& with) {
    return [&with, apply](const Scope& at, absl::Span<const GradientAndVariable> means,
                          bool counts_step) {
      return with.ApplyGradients(at, means, counts_step ? apply : ApplyOptions());
    };
  };
  Node* train = nullptr;
  if (options.all_reduce.has_value()) {
    all_reduce = std::make_shared<AllReduce>(*options.all_reduce);
    AllReduceParts parts;
    parts.apply = apply_with(optimizer);
    if (options.staying_optimizer != nullptr)
      parts.apply_staying = apply_with(*options.staying_optimizer);
    ASSIGN_OR_RETURN(train, all_reduce->ApplyGradients(scope, gradients, *global_step, parts));
    for (const TrainVariable& variable : all_reduce->local_variables())
      local_variables.push_back(variable);
  } else if (options.sync.has_value()) {
    sync = std::make_shared<SyncReplicas>(*options.sync);
    SyncReplicasParts parts;
    parts.global_variables = variables;
    parts.apply = [&](const Scope& at, absl::Span<const GradientAndVariable> means) {
      return optimizer.ApplyGradients(at, means, apply);
    };
    ASSIGN_OR_RETURN(train, sync->ApplyGradients(scope, gradients, *global_step, parts));
    local_variables.push_back(sync->local_step());
  } else {
    ASSIGN_OR_RETURN(train, optimizer.ApplyGradients(scope, gradients, apply));
  }
  for (const Optimizer* made : {static_cast<const Optimizer*>(&optimizer),
                                static_cast<const Optimizer*>(options.staying_optimizer)}) {
    if (made == nullptr) continue;
    variables.insert(variables.end(), made->variables().begin(), made->variables().end());
  }
  return train;
}

}  // namespace muster
