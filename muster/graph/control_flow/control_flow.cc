#include "muster/graph/control_flow/control_flow.h"

#include <algorithm>

#include "muster/graph/build/build_state.h"
#include "muster/graph/control_flow/control_flow_gradients.h"
#include "muster/graph/control_flow/while_context.h"

namespace muster {

ControlFlowContext::ControlFlowContext(const Scope& scope, absl::string_view name)
    : name_(scope.graph().UniqueName(absl::StrCat(scope.prefix(), name))),
      graph_(scope.graph()),
      outer_(scope.control_flow_context()) {
  if (outer_ != nullptr) outer_->nested_.push_back(this);
}

ControlFlowContext::ControlFlowContext(Graph& graph, std::string name, ControlFlowContext* outer)
    : name_(std::move(name)), graph_(graph), outer_(outer) {
  if (outer_ != nullptr) outer_->nested_.push_back(this);
}

WhileContext* ControlFlowContext::while_context() {
  for (ControlFlowContext* context = this; context != nullptr; context = context->outer()) {
    if (WhileContext* loop = context->AsWhile()) return loop;
  }
  return nullptr;
}

void ControlFlowContext::ExitResult(absl::Span<const Output> results) {
  if (outer_ == nullptr) return;
  for (const Output& result : results) outer_->AddName(result);
}

std::vector<Node*> ControlFlowContext::RemoveExternalControlEdges(Node& node) {
  std::vector<Node*> external;
  WhileContext* loop = while_context();
  if (loop == nullptr) return external;
  for (Node* before : node.control_inputs()) {
    ControlFlowContext* context = OutputContext(*before);
    if (context == nullptr || context->while_context() != loop) external.push_back(before);
  }
  for (Node* before : external) graph_.RemoveControlInput(node, *before);
  return external;
}

Output ControlFlowContext::ExternalOr(Output value) const {
  const auto found = external_values_.find(value);
  return found == external_values_.end() ? value : found->second;
}

namespace {

// Whether `node` may read from `input`: only from its own loop, loops around it, and (for
// gradients) the forward loop.
bool InputFromValidContext(const Node& node, const Node& input) {
  ControlFlowContext* node_context = node.control_flow_context();
  ControlFlowContext* input_context = OutputContext(input);
  if (input_context == nullptr || node_context == input_context) return true;
  WhileContext* loop = node_context == nullptr ? nullptr : node_context->while_context();
  WhileContext* input_loop = input_context->while_context();
  if (loop == nullptr) return input_loop == nullptr || IsLoopEnter(node) || IsSwitch(node);
  if (IsContainingContext(loop, input_loop)) return true;
  if (const GradLoopState* state = loop->grad_state()) {
    if (IsContainingContext(state->forward_context(), input_loop)) return true;
    if (state->forward_context() == input_loop->outer()) return true;
  }
  if (const GradLoopState* state = input_loop->grad_state()) {
    if (state->forward_context() == loop) return true;
    const GradLoopState* inner = state->forward_context()->grad_state();
    if (inner != nullptr && inner->forward_context() == loop) return true;
  }
  return false;
}

}  // namespace

absl::Status EnterControlFlowContext(Node& node, const Scope& scope) {
  for (const Output& input : node.inputs()) {
    if (InputFromValidContext(node, *input.node)) continue;
    if (WhileContextOf(node) != nullptr) {
      return InvalidArgument(
          "Cannot use '", input.node->name(), "' as input to '", node.name(),
          "' because they are in different while loops. See info log for more details.");
    }
    return InvalidArgument("Cannot use '", input.node->name(), "' as input to '", node.name(),
                           "' because '", input.node->name(),
                           "' is in a while loop. See info log for more details.");
  }
  ControlFlowContext* context = node.control_flow_context();
  if (context == nullptr) return absl::OkStatus();
  return context->AddOp(node, scope.WithPrefix(absl::StrCat(node.name(), "/")));
}

bool IsLoopConstantEnter(const Node& node) {
  if (!IsLoopEnter(node)) return false;
  const absl::StatusOr<bool> is_constant = node.Attr<bool>("is_constant");
  return is_constant.ok() && *is_constant;
}

namespace {

// A Switch is that of a conditional when all its consumers are in conditionals: it is not in the
// context itself.
bool IsCondSwitch(const Node& node) {
  for (const Node::Consumer& consumer : node.consumers()) {
    ControlFlowContext* context = consumer.node->control_flow_context();
    if (context != nullptr && IsLoopEnter(*consumer.node)) context = context->outer();
    if (context == nullptr || context->AsCond() == nullptr) return false;
  }
  return true;
}

}  // namespace

bool IsLoopSwitch(const Node& node) {
  if (!IsSwitch(node)) return false;
  ControlFlowContext* context = node.control_flow_context();
  return context != nullptr && context->AsWhile() != nullptr && !IsCondSwitch(node);
}

Node* LoopConstantEnter(Output value) {
  Node* node = value.node;
  while (IsSwitch(*node) || node->op() == "Identity" || node->op() == "RefIdentity")
    node = node->input(0).node;
  return IsLoopConstantEnter(*node) ? node : nullptr;
}

ControlFlowContext* OutputContext(const Node& node) {
  ControlFlowContext* context = node.control_flow_context();
  return context != nullptr && IsLoopExit(node) ? context->outer() : context;
}

WhileContext* WhileContextOf(const Node& node) {
  ControlFlowContext* context = node.control_flow_context();
  return context == nullptr ? nullptr : context->while_context();
}

bool IsContainingContext(ControlFlowContext* context, ControlFlowContext* outer) {
  while (context != outer) {
    if (context == nullptr) return false;
    context = context->outer();
  }
  return true;
}

bool IsFetchable(const Node& node) {
  return !node.graph().build_state().unfetchable.contains(&node);
}
bool IsFeedable(Output output) {
  return !output.node->graph().build_state().unfeedable.contains(output);
}
void PreventFetching(Node& node) {
  node.graph().build_state().unfetchable.insert(&node);
}
void PreventFeeding(Output output) {
  output.node->graph().build_state().unfeedable.insert(output);
}

absl::StatusOr<Output> TryOp(const Scope& scope, absl::string_view op,
                             std::vector<NodeInput> inputs, AttrMap attrs, absl::string_view name) {
  ASSIGN_OR_RETURN(Node * node, scope.TryAdd(op, std::move(inputs), std::move(attrs), name));
  return Output(node, 0);
}

absl::StatusOr<SwitchOutputs> AddSwitch(const Scope& scope, Output data, Output pred,
                                        absl::string_view name) {
  ASSIGN_OR_RETURN(Node * node, scope.TryAdd("Switch", {data, pred}, {}, name));
  return SwitchOutputs{Output(node, 0), Output(node, 1)};
}

absl::StatusOr<SwitchOutputs> AddColocatedSwitch(const Scope& scope, Output data, Output pred,
                                                 absl::string_view name) {
  const Scope colocated = scope.ColocatedWith(*data.node, /*ignore_existing=*/true);
  if (!IsRef(data.dtype())) return AddSwitch(colocated, data, pred, name);
  ASSIGN_OR_RETURN(Node * node, colocated.TryAdd("RefSwitch", {data, pred}, {}, name));
  return SwitchOutputs{Output(node, 0), Output(node, 1)};
}

absl::StatusOr<Output> AddMerge(const Scope& scope, std::vector<Output> inputs,
                                absl::string_view name) {
  const bool all_refs =
      std::all_of(inputs.begin(), inputs.end(), [](const Output& x) { return IsRef(x.dtype()); });
  return TryOp(scope, all_refs ? "RefMerge" : "Merge", {std::move(inputs)}, {}, name);
}

absl::StatusOr<Output> AddEnter(const Scope& scope, Output data, const WhileContext& frame,
                                EnterOptions options) {
  const AttrMap attrs = {{"frame_name", frame.name()},
                         {"is_constant", options.is_constant},
                         {"parallel_iterations", int64_t{frame.parallel_iterations()}}};
  ASSIGN_OR_RETURN(Output enter, TryOp(scope, IsRef(data.dtype()) ? "RefEnter" : "Enter", {data},
                                       attrs, options.name));
  enter.node->set_output_shape(
      0, options.use_input_shape || options.is_constant ? data.shape() : PartialShape());
  if (data.base_dtype() == DType::kResource) {
    enter.node->set_output_handle(0, data.node->output_handle(data.index));
  }
  return enter;
}

absl::StatusOr<Output> AddNextIteration(const Scope& scope, Output data) {
  return TryOp(scope, IsRef(data.dtype()) ? "RefNextIteration" : "NextIteration", {data});
}

absl::StatusOr<Output> AddExit(const Scope& scope, Output data, absl::string_view name) {
  return TryOp(scope, IsRef(data.dtype()) ? "RefExit" : "Exit", {data}, {}, name);
}

absl::StatusOr<Output> AddIdentity(const Scope& scope, Output data, absl::string_view name) {
  return TryOp(scope, IsRef(data.dtype()) ? "RefIdentity" : "Identity", {data}, {}, name);
}

absl::Status RefineShape(Output output, const PartialShape& shape) {
  ASSIGN_OR_RETURN(PartialShape merged, output.shape().Merge(shape));
  output.node->set_output_shape(output.index, std::move(merged));
  return absl::OkStatus();
}

}  // namespace muster
