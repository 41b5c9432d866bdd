#include "muster/graph/control_flow/while_context.h"

#include <algorithm>

#include "muster/graph/build/build_state.h"
#include "muster/graph/build/emit.h"
#include "muster/graph/control_flow/control_flow_gradients.h"
#include "muster/graph/shape_text.h"

namespace muster {
namespace {

// `shape` says at least as much as `invariant`.
bool SatisfiesInvariant(const PartialShape& shape, const PartialShape& invariant) {
  if (!invariant.known_rank()) return true;
  if (shape.rank() != invariant.rank()) return false;
  for (int i = 0; i < invariant.rank(); ++i) {
    if (invariant[i] >= 0 && shape[i] != invariant[i]) return false;
  }
  return true;
}

}  // namespace

absl::StatusOr<WhileContext*> WhileContext::Create(const Scope& scope, WhileSettings settings,
                                                   absl::string_view name) {
  if (settings.parallel_iterations < 1) {
    return InvalidArgument("`parallel_iterations` must be a positive integer: ",
                           settings.parallel_iterations);
  }
  auto context = std::unique_ptr<WhileContext>(new WhileContext(scope, settings, name));
  WhileContext* result = context.get();
  scope.graph().build_state().contexts.push_back(std::move(context));
  return result;
}

WhileContext& WhileContext::Restore(Graph& graph, std::string name, ControlFlowContext* outer,
                                    WhileSettings settings, const Pivots& pivots) {
  auto context = std::unique_ptr<WhileContext>(
      new WhileContext(graph, std::move(name), outer, settings, pivots));
  WhileContext& result = *context;
  graph.build_state().contexts.push_back(std::move(context));
  return result;
}

absl::StatusOr<Output> WhileContext::AddValue(Output value, const Scope& scope) {
  if (values_.contains(value) || value.node->control_flow_context() == this)
    return ExternalOr(value);
  values_.insert(value);

  // In the loop of a gradient, a value of the forward loop is taken from its recorded history.
  ControlFlowContext* current = scope.control_flow_context();
  WhileContext* gradient_loop = current == nullptr ? nullptr : current->while_context();
  if (gradient_loop != nullptr && gradient_loop->grad_state() != nullptr) {
    ControlFlowContext* seen_in = OutputContext(*value.node);
    WhileContext* forward_loop = seen_in == nullptr ? nullptr : seen_in->while_context();
    if (forward_loop == gradient_loop->grad_state()->forward_context()) {
      ASSIGN_OR_RETURN(const Output real, gradient_loop->grad_state()->RealValue(value, scope));
      external_values_[value] = real;
      return real;
    }
  }

  Output result = value;
  if (outer_ != nullptr) {
    ASSIGN_OR_RETURN(result, outer_->AddValue(value, scope));
  }
  ASSIGN_OR_RETURN(const Output enter, AddEnter(scope.WithoutControlDependencies(), result, *this,
                                                {.is_constant = true}));
  PreventFeeding(enter);
  RETURN_IF_ERROR(FixControlInputs(scope, {enter}));
  values_.insert(enter);
  external_values_[value] = enter;
  return enter;
}

absl::Status WhileContext::AddOp(Node& node, const Scope& scope) {
  // The shape of a forward value is computed in the forward loop, so that only the shape is
  // recorded.
  if (node.op() == "Shape" || node.op() == "Size" || node.op() == "Rank") {
    ControlFlowContext* current = scope.control_flow_context();
    WhileContext* gradient_loop = current == nullptr ? nullptr : current->while_context();
    if (gradient_loop != nullptr && gradient_loop->grad_state() != nullptr) {
      const Node& input = *node.input(0).node;
      if (WhileContextOf(input) == gradient_loop->grad_state()->forward_context()) {
        ControlFlowContext* context = input.control_flow_context();
        node.set_control_flow_context(context);
        return context->AddOpHere(node, scope);
      }
    }
  }
  return AddOpHere(node, scope);
}

absl::Status WhileContext::AddOpHere(Node& node, const Scope& scope) {
  std::vector<Node*> external;
  if (node.num_inputs() == 0) {
    external = RemoveExternalControlEdges(node);
    if (node.control_inputs().empty()) graph_.AddControlInput(node, *control_pivot().node);
  } else {
    for (int i = 0; i < node.num_inputs(); ++i) {
      const Output input = node.input(i);
      ASSIGN_OR_RETURN(const Output real, AddValue(input, scope));
      if (!(real == input)) RETURN_IF_ERROR(graph_.UpdateInput(node, i, real));
    }
    external = RemoveExternalControlEdges(node);
    // A node that reads constants of the loop only would run once too often.
    const bool is_function =
        graph_.functions().contains(node.op()) || node.op() == "SymbolicGradient";
    const auto& inputs = node.inputs();
    const bool invariant = std::all_of(inputs.begin(), inputs.end(), [](const Output& input) {
      return IsLoopConstantEnter(*input.node);
    });
    if (node.control_inputs().empty() && (is_function || invariant)) {
      graph_.AddControlInput(node, *control_pivot().node);
    }
  }
  for (int i = 0; i < node.num_outputs(); ++i) values_.insert(node.output(i));
  // A control input from outside becomes one on an Identity, inside the loop, of an output of that
  // node.
  const Scope inside = scope.WithoutControlDependencies().WithControlFlowContext(this);
  for (Node* before : external) {
    if (before->num_outputs() == 0) continue;
    ASSIGN_OR_RETURN(const Output identity, TryOp(inside, "Identity", {before->output(0)}));
    graph_.AddControlInput(node, *identity.node);
  }
  if (outer_ != nullptr || !IsLoopExit(node)) {
    PreventFetching(node);
    for (int i = 0; i < node.num_outputs(); ++i) PreventFeeding(node.output(i));
  }
  return absl::OkStatus();
}

absl::Status WhileContext::FixControlInputs(const Scope& scope, absl::Span<const Output> enters) {
  WhileContext* outer_loop = outer_ == nullptr ? nullptr : outer_->while_context();
  for (const Output& enter : enters) {
    for (Node* before : scope.ControlInputsFor({NodeInput(enter.node->input(0))})) {
      // Kept: control inputs in a context around this one, but within the next outer loop.
      ControlFlowContext* context = OutputContext(*before);
      bool keep = true;
      for (ControlFlowContext* at = outer_; at != context; at = at->outer()) {
        if (at == nullptr || at == outer_loop) {
          keep = false;
          break;
        }
      }
      if (keep) graph_.AddControlInput(*enter.node, *before);
    }
    enter.node->set_control_flow_context(this);
    scope.NoteMade(*enter.node);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Output>> WhileContext::EnterVariables(
    const Scope& scope, const std::vector<Output>& variables,
    const std::vector<PartialShape>& invariants) {
  values_.clear();
  values_.insert(variables.begin(), variables.end());
  std::vector<Output> real = variables;
  if (outer_ != nullptr) {
    for (Output& variable : real) {
      ASSIGN_OR_RETURN(variable, outer_->AddValue(variable, scope));
    }
  }
  const Scope free = scope.WithoutControlDependencies();
  for (const Output& variable : real) {
    ASSIGN_OR_RETURN(const Output enter,
                     AddEnter(free, variable, *this, {.use_input_shape = false}));
    PreventFeeding(enter);
    loop_enters_.push_back(enter);
  }
  Output outer_pivot;
  for (ControlFlowContext* at = outer_; at != nullptr && !outer_pivot; at = at->outer())
    outer_pivot = at->control_pivot();
  for (size_t i = 0; i < real.size(); ++i) {
    if (outer_pivot && IsLoopConstantEnter(*real[i].node)) {
      graph_.AddControlInput(*loop_enters_[i].node, *outer_pivot.node);
    }
    if (!SatisfiesInvariant(real[i].shape(), invariants[i])) {
      return InvalidArgument(
          "The shape invariant specified for ", real[i].name(),
          " is not compatible with the initial shape of the loop variable. It enters the loop with "
          "shape ",
          PythonShapeText(real[i].shape()), ", but the specified shape invariant is ",
          PythonShapeText(invariants[i]), ".");
    }
    RETURN_IF_ERROR(RefineShape(loop_enters_[i], invariants[i]));
  }
  RETURN_IF_ERROR(FixControlInputs(scope, loop_enters_));
  values_.clear();
  values_.insert(loop_enters_.begin(), loop_enters_.end());
  for (const Output& enter : loop_enters_) {
    ASSIGN_OR_RETURN(const Output merge, AddMerge(scope, {enter, enter}));
    merges_.push_back(merge);
    if (merges_.size() == 1) pivot_for_pred_ = merge;
  }
  return merges_;
}

absl::StatusOr<std::vector<Output>> WhileContext::SetCondition(const Scope& scope,
                                                               Output condition) {
  ASSIGN_OR_RETURN(pivot_, TryOp(scope, "LoopCond", {condition}));
  for (const Output& merge : merges_) {
    ASSIGN_OR_RETURN(const SwitchOutputs sides, AddColocatedSwitch(scope, merge, pivot_));
    switches_.push_back(sides);
  }
  std::vector<Output> body_variables;
  for (const SwitchOutputs& sides : switches_) {
    ASSIGN_OR_RETURN(const Output variable, AddIdentity(scope, sides.if_true));
    body_variables.push_back(variable);
  }
  pivot_for_body_ = body_variables[0];
  return body_variables;
}

absl::StatusOr<std::vector<Output>> WhileContext::CloseLoop(const Scope& scope,
                                                            const std::vector<Output>& next) {
  if (next.size() != merges_.size()) {
    return InvalidArgument("Number of inputs and outputs of body must match loop_vars: ",
                           merges_.size(), ", ", next.size());
  }
  for (size_t i = 0; i < next.size(); ++i) {
    ASSIGN_OR_RETURN(const Output back, AddNextIteration(scope, next[i]));
    if (!SatisfiesInvariant(back.shape(), merges_[i].shape())) {
      const Output initial = merges_[i].node->input(0).node->input(0);
      return InvalidArgument(
          "Input tensor '", initial.name(), "' enters the loop with shape ",
          PythonShapeText(initial.shape()), ", but has shape ", PythonShapeText(back.shape()),
          " after one iteration. To allow the shape to vary across iterations, use the "
          "`shape_invariants` argument of tf.while_loop to specify a less-specific shape.");
    }
    RETURN_IF_ERROR(graph_.UpdateInput(*merges_[i].node, 1, back));
  }
  for (const SwitchOutputs& sides : switches_) {
    ASSIGN_OR_RETURN(const Output exit, AddExit(scope, sides.if_false));
    loop_exits_.push_back(exit);
  }
  ExitResult(loop_exits_);
  merges_.clear();
  switches_.clear();
  return loop_exits_;
}

absl::StatusOr<WhileBuilder> WhileBuilder::Create(
    const Scope& scope, std::vector<Output> variables,
    std::optional<std::vector<PartialShape>> invariants, WhileSettings settings) {
  if (variables.empty()) return InvalidArgument("No loop variables provided");
  std::vector<PartialShape> shapes;
  for (const Output& variable : variables) {
    if (!variable) return InvalidArgument("A loop variable has no value");
    shapes.push_back(variable.shape());
  }
  if (invariants.has_value()) {
    if (invariants->size() != variables.size()) {
      return InvalidArgument(invariants->size(), " shape invariants for ", variables.size(),
                             " loop variables");
    }
    shapes = *std::move(invariants);
  }
  ASSIGN_OR_RETURN(WhileContext * context, WhileContext::Create(scope, settings));
  WhileBuilder builder(scope.WithControlFlowContext(context), *context);
  ASSIGN_OR_RETURN(builder.condition_variables_,
                   context->EnterVariables(builder.scope_, variables, shapes));
  return builder;
}

absl::Status WhileBuilder::SetCondition(Output condition) {
  RETURN_IF_ERROR(scope_.status());
  if (!condition) return InvalidArgument("The condition of a loop has no value");
  if (!body_variables_.empty())
    return FailedPrecondition("The condition of the loop is set already");
  ASSIGN_OR_RETURN(body_variables_, context_->SetCondition(scope_, condition));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Output>> WhileBuilder::Finish(const std::vector<Output>& next) {
  RETURN_IF_ERROR(scope_.status());
  if (body_variables_.empty()) return FailedPrecondition("The loop has no condition yet");
  for (const Output& output : next) {
    if (!output) return InvalidArgument("The body of a loop returned no value");
  }
  return context_->CloseLoop(scope_, next);
}

absl::StatusOr<std::vector<Output>> WhileLoop(const Scope& scope, std::vector<Output> variables,
                                              const ConditionFunction& condition,
                                              const BodyFunction& body, WhileOptions options) {
  ASSIGN_OR_RETURN(const Scope own, scope.TryNameScope(options.name));
  if (variables.empty()) return InvalidArgument("No loop variables provided");
  const Output limit = options.maximum_iterations;
  if (limit) {
    if (limit.shape().rank() != 0) {
      return InvalidArgument("maximum_iterations must be a scalar, saw shape: ",
                             PythonShapeText(limit.shape()));
    }
    const Scope fresh = own.WithFreshStatus();
    const Output counter = EmitScalar(fresh, limit.base_dtype(), 0, "iteration_counter");
    RETURN_IF_ERROR(fresh.status());
    variables.insert(variables.begin(), counter);
    if (options.shape_invariants.has_value()) {
      options.shape_invariants->insert(options.shape_invariants->begin(), PartialShape::Scalar());
    }
  }
  const WhileSettings settings = {.parallel_iterations = options.parallel_iterations,
                                  .back_prop = options.back_prop,
                                  .swap_memory = options.swap_memory,
                                  .maximum_iterations = limit};
  ASSIGN_OR_RETURN(WhileBuilder builder,
                   WhileBuilder::Create(own, std::move(variables),
                                        std::move(options.shape_invariants), settings));
  const auto without_counter = [&](const std::vector<Output>& all) {
    return std::vector<Output>(all.begin() + (limit ? 1 : 0), all.end());
  };

  const Scope& inside = builder.scope();
  Output below_limit;
  if (limit) {
    ASSIGN_OR_RETURN(below_limit, TryOp(inside, "Less", {builder.condition_variables()[0], limit}));
  }
  ASSIGN_OR_RETURN(Output go_on, condition(inside, without_counter(builder.condition_variables())));
  if (limit) {
    ASSIGN_OR_RETURN(go_on, TryOp(inside, "LogicalAnd", {below_limit, go_on}));
  }
  RETURN_IF_ERROR(builder.SetCondition(go_on));

  Output next_count;
  if (limit) {
    const Scope add = inside.NameScope("add").WithFreshStatus();
    const Output one = EmitScalar(add, limit.base_dtype(), 1, "y");
    next_count = OpNamed(add, "AddV2", {builder.body_variables()[0], one});
    RETURN_IF_ERROR(add.status());
  }
  ASSIGN_OR_RETURN(std::vector<Output> next,
                   body(inside, without_counter(builder.body_variables())));
  if (limit) next.insert(next.begin(), next_count);
  ASSIGN_OR_RETURN(std::vector<Output> exits, builder.Finish(next));
  return without_counter(exits);
}

}  // namespace muster
