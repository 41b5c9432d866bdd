#include "muster/graph/control_flow/cond_context.h"

#include <algorithm>

#include "muster/graph/build/build_state.h"
#include "muster/graph/build/emit.h"

namespace muster {

CondContext::CondContext(const Scope& scope, Output pred, Output pivot, int branch)
    : ControlFlowContext(scope, "cond_text"), pred_(pred), pivot_(pivot), branch_(branch) {
  values_.insert(pred);
  external_values_[pred] = pred;
  values_.insert(pivot);
  pivot.node->set_control_flow_context(this);
}

CondContext& CondContext::Create(const Scope& scope, Output pred, Output pivot, int branch) {
  auto context = std::unique_ptr<CondContext>(new CondContext(scope, pred, pivot, branch));
  CondContext& result = *context;
  scope.graph().build_state().contexts.push_back(std::move(context));
  return result;
}

CondContext& CondContext::Restore(Graph& graph, std::string name, ControlFlowContext* outer,
                                  Output pred, Output pivot, int branch) {
  auto context = std::unique_ptr<CondContext>(
      new CondContext(graph, std::move(name), outer, pred, pivot, branch));
  CondContext& result = *context;
  graph.build_state().contexts.push_back(std::move(context));
  return result;
}

absl::StatusOr<Output> CondContext::AddValue(Output value, const Scope& scope) {
  if (values_.contains(value)) return ExternalOr(value);
  Output result = value;
  values_.insert(value);
  if (outer_ != nullptr) {
    ASSIGN_OR_RETURN(result, outer_->AddValue(value, scope));
    values_.insert(result);
    external_values_[result] = result;
  }
  ASSIGN_OR_RETURN(const SwitchOutputs outputs,
                   AddColocatedSwitch(scope.WithoutControlDependencies(), result, pred_));
  result = outputs.branch(branch_);
  PreventFetching(*result.node);
  result.node->set_control_flow_context(this);
  for (ControlFlowContext* context = this; context != nullptr; context = context->outer())
    context->AddName(result);
  external_values_[value] = result;
  return result;
}

absl::Status CondContext::AddOpHere(Node& node, const Scope& scope) {
  if (node.num_inputs() == 0) {
    RemoveExternalControlEdges(node);
    const auto& before = node.control_inputs();
    const bool anchored = std::any_of(before.begin(), before.end(), [this](const Node* input) {
      return IsContainingContext(input->control_flow_context(), this);
    });
    if (!anchored) graph_.AddControlInput(node, *pivot_.node);
  } else {
    for (int i = 0; i < node.num_inputs(); ++i) {
      const Output input = node.input(i);
      // While a loop is being imported into the branch its back edge is not known yet, but will be.
      if (node.op() == "Merge" && input.node->op() == "NextIteration") continue;
      ASSIGN_OR_RETURN(const Output real, AddValue(input, scope));
      if (!(real == input)) RETURN_IF_ERROR(graph_.UpdateInput(node, i, real));
    }
    RemoveExternalControlEdges(node);
    if (graph_.functions().contains(node.op()) || node.op() == "SymbolicGradient") {
      graph_.AddControlInput(node, *pivot_.node);
    }
  }
  for (ControlFlowContext* context = this; context != nullptr; context = context->outer()) {
    for (int i = 0; i < node.num_outputs(); ++i) context->AddName(node.output(i));
  }
  if (outer_ != nullptr || !IsLoopExit(node)) PreventFetching(node);
  return absl::OkStatus();
}

absl::StatusOr<Output> CondContext::AddResult(Output value, const Scope& scope) {
  if (values_.contains(value)) return ExternalOr(value);
  Output real = value;
  values_.insert(value);
  if (outer_ != nullptr) {
    ASSIGN_OR_RETURN(real, outer_->AddValue(value, scope));
    values_.insert(real);
    external_values_[real] = real;
  }
  ASSIGN_OR_RETURN(const SwitchOutputs outputs, AddColocatedSwitch(scope, real, pred_));
  real = outputs.branch(branch_);
  external_values_[value] = real;
  return real;
}

absl::StatusOr<Output> AddWithDependencies(const Scope& scope, absl::Span<Node* const> before,
                                           Output output) {
  ASSIGN_OR_RETURN(const Scope own, scope.TryNameScope("control_dependency"));
  const Scope inner = own.ColocatedWith(*output.node).WithControlDependencies(before);
  return AddIdentity(inner, output, own.prefix());
}

absl::StatusOr<CondBuilder> CondBuilder::Create(const Scope& scope, Output pred) {
  if (!pred) return InvalidArgument("A conditional needs a predicate");
  CondBuilder builder(scope);
  ASSIGN_OR_RETURN(const SwitchOutputs sides, AddSwitch(scope, pred, pred));
  ASSIGN_OR_RETURN(const Output true_pivot,
                   TryOp(scope, "Identity", {sides.if_true}, {}, "switch_t"));
  ASSIGN_OR_RETURN(builder.false_pivot_,
                   TryOp(scope, "Identity", {sides.if_false}, {}, "switch_f"));
  ASSIGN_OR_RETURN(builder.pred_, TryOp(scope, "Identity", {pred}, {}, "pred_id"));
  for (const Output& output : {sides.if_true, true_pivot, builder.false_pivot_, builder.pred_}) {
    PreventFetching(*output.node);
  }
  builder.true_.context = &CondContext::Create(scope, builder.pred_, true_pivot, 1);
  builder.true_.scope = scope.WithControlFlowContext(builder.true_.context);
  return builder;
}

absl::StatusOr<Scope> CondBuilder::false_scope() {
  if (!true_.finished)
    return FailedPrecondition("The true branch is finished before the false branch is built");
  if (false_.context == nullptr) {
    false_.context = &CondContext::Create(scope_, pred_, false_pivot_, 0);
    false_.scope = scope_.WithControlFlowContext(false_.context);
  }
  return false_.scope;
}

absl::Status CondBuilder::FinishBranch(Branch& branch, absl::Span<const BranchResult> results,
                                       absl::string_view what) {
  if (branch.context == nullptr || branch.finished) {
    return FailedPrecondition("The branch ", what, " is not being built");
  }
  RETURN_IF_ERROR(branch.scope.status());
  for (const BranchResult& result : results) {
    Output output;
    if (Node* const* node = std::get_if<Node*>(&result)) {
      // The pivot stands for a node without a result of its own.
      ASSIGN_OR_RETURN(output, AddWithDependencies(branch.scope, {*node}, branch.context->pivot()));
    } else {
      output = std::get<Output>(result);
      if (!output) return InvalidArgument(what, " must have a return value.");
      ASSIGN_OR_RETURN(output, branch.context->AddResult(output, branch.scope));
    }
    branch.results.push_back(output);
  }
  branch.context->ExitResult(branch.results);
  branch.finished = true;
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Output>> CondBuilder::Merge() {
  if (!true_.finished || !false_.finished)
    return FailedPrecondition("Both branches are finished before the merge");
  if (true_.results.empty())
    return InvalidArgument("true_fn and false_fn must return at least one result.");
  if (true_.results.size() != false_.results.size()) {
    return InvalidArgument(
        "Incompatible return values of true_fn and false_fn: The two structures don't have the "
        "same "
        "number of elements: ",
        true_.results.size(), " vs ", false_.results.size());
  }
  std::vector<Output> merged;
  for (size_t i = 0; i < true_.results.size(); ++i) {
    const Output x = true_.results[i];
    const Output y = false_.results[i];
    if (x.base_dtype() != y.base_dtype()) {
      return InvalidArgument("Outputs of true_fn and false_fn must have the same type: ",
                             DTypeName(x.dtype()), ", ", DTypeName(y.dtype()));
    }
    ASSIGN_OR_RETURN(const Output merge, AddMerge(scope_, {y, x}));
    merged.push_back(merge);
  }
  return merged;
}

absl::StatusOr<std::vector<Output>> Cond(const Scope& scope, Output pred,
                                         const BranchFunction& true_fn,
                                         const BranchFunction& false_fn, absl::string_view name) {
  ASSIGN_OR_RETURN(const Scope own, scope.TryNameScope(name));
  ASSIGN_OR_RETURN(CondBuilder builder, CondBuilder::Create(own, pred));
  ASSIGN_OR_RETURN(const std::vector<BranchResult> true_results, true_fn(builder.true_scope()));
  RETURN_IF_ERROR(builder.FinishTrue(true_results));
  ASSIGN_OR_RETURN(const Scope false_scope, builder.false_scope());
  ASSIGN_OR_RETURN(const std::vector<BranchResult> false_results, false_fn(false_scope));
  RETURN_IF_ERROR(builder.FinishFalse(false_results));
  return builder.Merge();
}

}  // namespace muster
