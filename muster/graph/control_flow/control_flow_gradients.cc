#include "muster/graph/control_flow/control_flow_gradients.h"

#include "muster/graph/build/emit.h"
#include "muster/graph/control_flow/cond_context.h"
#include "muster/graph/gradients/gradients.h"
#include "muster/graph/gradients/sparse_gradients.h"

namespace muster {

absl::StatusOr<std::shared_ptr<GradLoopState>> GradLoopState::Create(const Scope& scope,
                                                                     WhileContext& forward,
                                                                     GradLoopState* outer) {
  auto state = std::shared_ptr<GradLoopState>(new GradLoopState());
  state->outer_ = outer;
  state->called_in_ = scope.control_flow_context();
  state->forward_exits_ = forward.loop_exits();
  state->pending_exits = static_cast<int>(state->forward_exits_.size());

  ControlFlowContext* around = outer != nullptr ? outer->forward_context() : forward.outer();
  const Scope forward_scope = around == nullptr ? scope : scope.WithControlFlowContext(around);
  ASSIGN_OR_RETURN(const WhileContext::ForwardCounter counter,
                   forward.AddForwardCounter(forward_scope, outer));
  state->forward_ = &forward;
  state->forward_index_ = counter.next;

  Output count = counter.total;
  Scope backward_scope = forward_scope;
  Output history;
  if (outer != nullptr) {
    // An inner loop: its number of iterations is recorded once per iteration of the outer one.
    around->AddName(count);
    ASSIGN_OR_RETURN(history, outer->AddForwardAccumulator(scope, count));
    backward_scope = scope.WithControlFlowContext(outer->grad_context());
  }
  ASSIGN_OR_RETURN(state->backward_,
                   WhileContext::Create(backward_scope, forward.settings(), forward.name()));
  state->backward_->set_grad_state(state);
  if (outer != nullptr) {
    ASSIGN_OR_RETURN(count, outer->AddAccumulatedValue(backward_scope, history, count));
  }
  ASSIGN_OR_RETURN(state->backward_index_,
                   state->backward_->AddBackwardCounter(backward_scope, count, outer));
  return state;
}

absl::StatusOr<Node*> GradLoopState::ForwardSync(const Scope& scope) {
  if (forward_sync_ == nullptr) {
    ASSIGN_OR_RETURN(forward_sync_,
                     scope.WithoutControlDependencies().TryAdd("ControlTrigger", {}, {}, "f_sync"));
    forward_sync_->set_control_flow_context(forward_);
    scope.graph().AddControlInput(*forward_index_.node, *forward_sync_);
  }
  return forward_sync_;
}

absl::StatusOr<Node*> GradLoopState::BackwardSync(const Scope& scope) {
  if (backward_sync_ == nullptr) {
    ASSIGN_OR_RETURN(backward_sync_,
                     scope.WithoutControlDependencies().TryAdd("ControlTrigger", {}, {}, "b_sync"));
    backward_sync_->set_control_flow_context(backward_);
    scope.graph().AddControlInput(*backward_index_.node, *backward_sync_);
  }
  return backward_sync_;
}

absl::StatusOr<Output> GradLoopState::AddForwardAccumulator(const Scope& scope, Output value,
                                                            bool dead_branch) {
  Graph& graph = scope.graph();
  const Scope free = scope.WithoutControlDependencies();
  const Scope made_in = CallScope(free).ColocatedWith(*value.node).WithFreshStatus();
  const Output max_size = made_in.ConstScalar<int32_t>(-1);
  const Output stack =
      made_in.Op("StackV2", {max_size}, {{"elem_type", value.base_dtype()}}, "f_acc");
  RETURN_IF_ERROR(made_in.status());
  ASSIGN_OR_RETURN(const Output inside, forward_->AddValue(stack, free));

  const AttrMap attrs = {{"swap_memory", forward_->settings().swap_memory}};
  const auto push_in = [&](ControlFlowContext* context) {
    return TryOp(free.WithControlFlowContext(context), "StackPushV2", {inside, value}, attrs);
  };
  ControlFlowContext* value_context = OutputContext(*value.node);
  Output push;
  if (value_context == forward_) {
    ASSIGN_OR_RETURN(push, push_in(forward_));
    graph.AddControlInput(*forward_index_.node, *push.node);
  } else {
    if (value_context == nullptr || value_context->AsCond() == nullptr) {
      return Internal("'", value.name(), "' is neither in the loop '", forward_->name(),
                      "' nor in a conditional in it");
    }
    ASSIGN_OR_RETURN(push, push_in(dead_branch ? value_context->outer() : value_context));
    if (dead_branch) push.node->set_control_flow_context(value_context);
    ASSIGN_OR_RETURN(Node * sync, ForwardSync(free));
    graph.AddControlInput(*sync, *push.node);
  }
  graph.AddControlInput(*push.node, *forward_index_.node->input(0).node);
  return stack;
}

absl::StatusOr<Output> GradLoopState::AddAccumulatedValue(const Scope& scope, Output stack,
                                                          Output value, bool dead_branch) {
  ControlFlowContext* stack_context = stack.node->control_flow_context();
  CondContext* cond = nullptr;
  for (ControlFlowContext* at = value.node->control_flow_context();
       at != nullptr && at != stack_context; at = at->outer()) {
    if ((cond = at->AsCond()) != nullptr) break;
  }
  const Scope free = scope.WithoutControlDependencies();
  const Scope inside = free.WithControlFlowContext(backward_);
  if (cond != nullptr) {
    // Only the branch that pushed may pop.
    Output pred;
    for (GradLoopState* state = this; state != nullptr && !pred; state = state->outer()) {
      const auto found = state->history_.find(cond->pred());
      if (found != state->history_.end()) pred = found->second;
    }
    if (!pred) pred = cond->pred();
    ASSIGN_OR_RETURN(const SwitchOutputs sides, AddColocatedSwitch(inside, stack, pred));
    stack = sides.branch(dead_branch ? 1 - cond->branch() : cond->branch());
  }
  ASSIGN_OR_RETURN(const Output pop,
                   TryOp(inside, "StackPopV2", {stack}, {{"elem_type", value.base_dtype()}}));
  RETURN_IF_ERROR(RefineShape(pop, value.shape()));
  if (backward_->parallel_iterations() > 1) {
    ASSIGN_OR_RETURN(Node * sync, BackwardSync(scope));
    scope.graph().AddControlInput(*sync, *pop.node);
  }
  return pop;
}

absl::StatusOr<Output> GradLoopState::RealValue(Output value, const Scope& scope) {
  const auto found = history_.find(value);
  if (found != history_.end()) return found->second;
  Output current = value;
  GradLoopState* state = this;
  Output real;
  while (!real) {
    if (Node* enter = LoopConstantEnter(current)) {
      current = enter->input(0);
      state = state->outer();
      if (state == nullptr) {
        ASSIGN_OR_RETURN(real, backward_->AddValue(current, scope));
      }
    } else if (current.node->op() == "Const") {
      ASSIGN_OR_RETURN(const Tensor tensor, current.node->Attr<Tensor>("value"));
      ASSIGN_OR_RETURN(real,
                       TryOp(scope, "Const", {}, {{"value", tensor}, {"dtype", tensor.dtype()}}));
    } else {
      ASSIGN_OR_RETURN(const Output stack, state->AddForwardAccumulator(CallScope(scope), current));
      ASSIGN_OR_RETURN(real, state->AddAccumulatedValue(scope, stack, current));
      if (state != this) {
        ASSIGN_OR_RETURN(real, backward_->AddValue(real, scope));
      }
    }
  }
  history_[value] = real;
  return real;
}

absl::StatusOr<Output> GradLoopState::RealPredicate(Output pred, const Scope& scope) {
  const auto found = history_.find(pred);
  if (found != history_.end()) return found->second;
  ASSIGN_OR_RETURN(const Output stack, AddForwardAccumulator(CallScope(scope), pred));
  ASSIGN_OR_RETURN(const Output real, AddAccumulatedValue(scope, stack, pred));
  history_[pred] = real;
  return real;
}

GradLoopState* LoopGradients::Find(ControlFlowContext* context) const {
  WhileContext* loop = context == nullptr ? nullptr : context->while_context();
  for (const auto& [forward, state] : states_) {
    if (forward == loop) return state.get();
  }
  return nullptr;
}

absl::Status LoopGradients::AddLoop(const Scope& scope, Node& exit,
                                    std::vector<Node*>& between_list,
                                    absl::flat_hash_set<Node*>& between) {
  WhileContext* forward = WhileContextOf(exit);
  if (forward == nullptr) {
    return InvalidArgument(
        "Failed to call gradients on a while loop without properly serializing graph via "
        "MetaGraphDef");
  }
  if (Find(forward) != nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(std::shared_ptr<GradLoopState> state,
                   GradLoopState::Create(scope, *forward, Find(forward->outer())));
  for (const Output& other : state->forward_exits()) {
    if (between.insert(other.node).second) between_list.push_back(other.node);
  }
  states_.emplace_back(forward, std::move(state));
  return absl::OkStatus();
}

GradLoopState* LoopGradients::StateFor(const Node& node, bool before) const {
  return Find(before ? OutputContext(node) : node.control_flow_context());
}

Scope LoopGradients::ScopeFor(const Node& node, bool before, const Scope& scope) const {
  GradLoopState* state = StateFor(node, before);
  return state == nullptr ? scope : scope.WithControlFlowContext(state->grad_context());
}

std::vector<Output> LoopGradients::UnusedExits(absl::flat_hash_map<Node*, int>& pending,
                                               const absl::flat_hash_set<Node*>& to_nodes) {
  std::vector<Output> exits;
  for (const auto& [forward, state] : states_) {
    for (const Output& exit : state->forward_exits()) {
      if (pending[exit.node] != 0) continue;
      --state->pending_exits;
      if (!to_nodes.contains(exit.node)) state->unused_exits.push_back(exit);
      if (state->pending_exits == 0) {
        exits.insert(exits.end(), state->unused_exits.begin(), state->unused_exits.end());
      }
    }
    // Enters take part even where nothing else needs them.
    for (const Output& enter : forward->loop_enters()) {
      int& count = pending[enter.node];
      if (count == 0) count = 1;
    }
  }
  return exits;
}

absl::StatusOr<Output> LoopGradients::ZerosForExit(const Scope& scope, Output exit) const {
  ControlFlowContext* around = exit.node->control_flow_context()->outer();
  GradLoopState* outer = Find(around);
  const auto shape = exit.shape().ToShape();
  const Scope at = (outer == nullptr ? scope : scope.WithControlFlowContext(outer->grad_context()))
                       .WithFreshStatus();
  Output zeros;
  if (shape.has_value()) {
    zeros = EmitZeros(at, *shape, exit.base_dtype());
  } else if (outer == nullptr) {
    zeros = EmitZerosLike(at, exit, /*optimize=*/false);
  } else {
    // Only the shape is recorded.
    const Scope forward = scope.WithControlFlowContext(around).WithFreshStatus();
    const Output exit_shape = EmitShape(forward, exit, "Shape", DType::kInt32, /*optimize=*/false);
    RETURN_IF_ERROR(forward.status());
    ASSIGN_OR_RETURN(const Output stack, outer->AddForwardAccumulator(scope, exit_shape));
    ASSIGN_OR_RETURN(const Output real, outer->AddAccumulatedValue(at, stack, exit_shape));
    zeros = EmitZeros(at, real, exit.base_dtype());
  }
  RETURN_IF_ERROR(at.status());
  return zeros;
}

absl::StatusOr<Gradient> LoopGradients::ZerosLike(const Scope& scope, Node& node, int i) const {
  if (IsLoopSwitch(node)) return Gradient();
  GradLoopState* state = Find(node.control_flow_context());
  if (state == nullptr) return ZerosLikeOutsideLoop(scope, node, i);
  const bool dead_branch = IsSwitch(node);
  ControlFlowContext* context = node.control_flow_context();
  CondContext* cond = context->AsCond();
  if (dead_branch && (cond == nullptr || context->outer() == nullptr)) {
    return Internal("The Switch '", node.name(),
                    "' belongs neither to a loop nor to a conditional in one");
  }
  const Output value = node.output(i);
  const auto known = value.shape().ToShape();
  const Scope fresh = scope.WithFreshStatus();
  if (known.has_value()) {
    const Output zeros = EmitZerosConst(fresh, *known, value.base_dtype());
    RETURN_IF_ERROR(fresh.status());
    if (!dead_branch) return zeros;
    ASSIGN_OR_RETURN(const Output pred, state->RealPredicate(cond->pred(), scope));
    ASSIGN_OR_RETURN(const SwitchOutputs sides, AddColocatedSwitch(scope, zeros, pred));
    return sides.branch(1 - cond->branch());
  }
  const Scope forward =
      scope.WithControlFlowContext(dead_branch ? context->outer() : context).WithFreshStatus();
  Output shape;
  if (dead_branch) {
    ASSIGN_OR_RETURN(const SwitchOutputs sides,
                     AddColocatedSwitch(forward, node.input(0), cond->pred()));
    const Output dead = sides.branch(1 - cond->branch());
    shape = EmitShape(forward, dead, "Shape", DType::kInt32, /*optimize=*/false);
    RETURN_IF_ERROR(forward.status());
    dead.node->set_control_flow_context(context);
    shape.node->set_control_flow_context(context);
  } else {
    shape = EmitShape(forward, value, "Shape", DType::kInt32, /*optimize=*/false);
    RETURN_IF_ERROR(forward.status());
  }
  ASSIGN_OR_RETURN(const Output stack, state->AddForwardAccumulator(scope, shape, dead_branch));
  ASSIGN_OR_RETURN(const Output real, state->AddAccumulatedValue(scope, stack, shape, dead_branch));
  const Output zeros = EmitZeros(fresh, real, value.base_dtype());
  RETURN_IF_ERROR(fresh.status());
  return zeros;
}

absl::Status LoopGradients::Finish(const Scope& scope) {
  for (const auto& [forward, state] : states_) {
    WhileContext* backward = state->grad_context();
    const Scope inside = scope.WithControlFlowContext(backward).WithFreshStatus();
    for (const auto& [loop_switch, merged] : state->switch_merges()) {
      Node& merge = GradientNode(merged);
      const Output initial = merge.input(0);
      if (!(initial == merge.input(1))) continue;
      // The variable does not depend on its former value: zeros for all iterations but the last.
      const auto shape = initial.shape().ToShape();
      Output zeros;
      if (shape.has_value()) {
        zeros = EmitZerosConst(inside, *shape, initial.base_dtype());
        RETURN_IF_ERROR(inside.status());
      } else {
        const Scope outside =
            (backward->outer() == nullptr ? scope : scope.WithControlFlowContext(backward->outer()))
                .WithFreshStatus();
        const Output entered = initial.node->input(0);
        const Output dims = EmitShape(outside, entered, "Shape", DType::kInt32, /*optimize=*/false);
        zeros = EmitZeros(outside, dims, initial.base_dtype());
        RETURN_IF_ERROR(outside.status());
      }
      ASSIGN_OR_RETURN(const Output back, AddNextIteration(inside, zeros));
      RETURN_IF_ERROR(scope.graph().UpdateInput(merge, 1, back));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Gradient> ZerosLikeOutsideLoop(const Scope& scope, Node& node, int i) {
  const Output value = node.output(i);
  const bool is_resource = value.base_dtype() == DType::kResource;
  const Scope fresh = scope.WithFreshStatus();
  ControlFlowContext* context = node.control_flow_context();
  Output zeros;
  if (!IsSwitch(node) || context == nullptr) {
    zeros = is_resource && !IsSwitch(node)
                ? EmitZeros(fresh, fresh.Op("VariableShape", {value}), GradientType(value))
                : EmitZerosLike(fresh, value, /*optimize=*/false);
  } else {
    CondContext* cond = context->AsCond();
    if (cond == nullptr) {
      return Internal("The Switch '", node.name(), "' of a loop has no zeros outside of it");
    }
    ASSIGN_OR_RETURN(const SwitchOutputs sides, AddSwitch(scope, node.input(0), cond->pred()));
    const Output taken = sides.branch(1 - cond->branch());
    // Control dependencies are on nodes, not on outputs: the identity runs on the taken side only.
    ASSIGN_OR_RETURN(const Output pivot, TryOp(scope, "Identity", {taken}));
    const Scope after = fresh.WithControlDependencies({pivot.node});
    if (is_resource) {
      zeros = EmitZeros(after, after.Op("VariableShape", {taken}), GradientType(value));
    } else {
      const Output shape = EmitShape(fresh, taken, "Shape", DType::kInt32, /*optimize=*/false);
      zeros = EmitZeros(after, shape, value.base_dtype());
    }
  }
  RETURN_IF_ERROR(fresh.status());
  return zeros;
}

namespace {

// The loop of a gradient that is being built; null outside.
WhileContext* GradientLoop(const GradientContext& c) {
  ControlFlowContext* context = const_cast<GradientContext&>(c).scope().control_flow_context();
  WhileContext* loop = context == nullptr ? nullptr : context->while_context();
  return loop != nullptr && loop->grad_state() != nullptr ? loop : nullptr;
}

absl::Status LoopSwitchGradient(GradientContext& c) {
  WhileContext* loop = GradientLoop(c);
  if (loop == nullptr)
    return Internal("'", c.node().name(), "' is differentiated outside of its loop");
  auto& merges = loop->grad_state()->switch_merges();
  for (const auto& [node, merged] : merges) {
    if (node != &c.node()) continue;
    // The second visit, from the body: closes the loop of the merge made on the first.
    if (!c.has_dy(1)) return absl::OkStatus();
    Gradient next = c.gradient(1);
    if (std::holds_alternative<IndexedSlices>(merged)) {
      ASSIGN_OR_RETURN(next, AsIndexedSlices(c.scope(), next, /*optimize=*/false));
    } else if (std::holds_alternative<IndexedSlices>(next)) {
      next = c.dy(1);
      RETURN_IF_ERROR(c.scope().status());
    }
    const std::vector<Output> heads = Components(merged);
    std::vector<Output> tails;
    for (const Output& part : Components(next)) {
      ASSIGN_OR_RETURN(const Output back, AddNextIteration(c.scope(), part));
      tails.push_back(back);
    }
    if (heads.size() != tails.size())
      return InvalidArgument("Slices with and without a dense shape in one loop");
    for (size_t i = 0; i < heads.size(); ++i) {
      RETURN_IF_ERROR(c.scope().graph().UpdateInput(*heads[i].node, 1, tails[i]));
    }
    return absl::OkStatus();
  }
  // The first visit, from the Exit; nothing to do where that is not differentiable.
  if (!c.has_dy(0)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const Gradient merged,
                   MergeGradients(c.scope(), {c.gradient(0), c.gradient(0)}, "b_switch"));
  merges.emplace_back(&c.node(), merged);
  c.SetDx(0, merged);
  return absl::OkStatus();
}

}  // namespace

absl::Status SwitchGradient(GradientContext& c) {
  ControlFlowContext* context = c.node().control_flow_context();
  if (context != nullptr && context->AsWhile() != nullptr) return LoopSwitchGradient(c);
  if (context != nullptr && context->AsCond() != nullptr) {
    const int branch = context->AsCond()->branch();
    if (c.has_dy(1 - branch)) {
      if (!c.has_dy(branch)) return absl::OkStatus();
      ASSIGN_OR_RETURN(Gradient dx,
                       MergeGradients(c.scope(), {c.gradient(0), c.gradient(1)}, "cond_grad"));
      c.SetDx(0, std::move(dx));
    } else if (c.input(0).base_dtype() == DType::kResource && c.has_dy(branch)) {
      ASSIGN_OR_RETURN(Gradient dx,
                       MergeGradients(c.scope(), {c.gradient(branch), c.gradient(branch)},
                                      "cond_resource_grad"));
      c.SetDx(0, std::move(dx));
    }
    return absl::OkStatus();
  }
  if (!c.has_dy(0) || !c.has_dy(1)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const GradientSides first,
                   SwitchGradients(c.scope(), c.gradient(0), c.input(1), false));
  ASSIGN_OR_RETURN(const GradientSides second,
                   SwitchGradients(c.scope(), c.gradient(1), c.input(1), false));
  ASSIGN_OR_RETURN(Gradient dx,
                   MergeGradients(c.scope(), {first.if_false, second.if_true}, "Merge"));
  c.SetDx(0, std::move(dx));
  return absl::OkStatus();
}

absl::Status MergeGradient(GradientContext& c) {
  if (!c.has_dy(0)) return absl::OkStatus();
  ControlFlowContext* context = OutputContext(*c.input(0).node);
  if (context != nullptr) {
    WhileContext* loop = GradientLoop(c);
    GradientSides sides;
    if (context->AsWhile() != nullptr) {
      if (loop == nullptr)
        return Internal("'", c.node().name(), "' is differentiated outside of its loop");
      ASSIGN_OR_RETURN(sides, SwitchGradients(c.scope(), c.gradient(0), loop->pivot(), true));
    } else {
      Output pred = context->AsCond()->pred();
      if (loop != nullptr) {
        ASSIGN_OR_RETURN(pred, loop->grad_state()->RealPredicate(pred, c.scope()));
      }
      ASSIGN_OR_RETURN(sides, SwitchGradients(c.scope(), c.gradient(0), pred, true, "cond_grad"));
    }
    c.SetDx(0, sides.if_false);
    if (c.num_inputs() > 1) c.SetDx(1, sides.if_true);
    return absl::OkStatus();
  }
  std::vector<Output> chosen;
  for (int i = 0; i < c.num_inputs(); ++i) {
    const Scope own = c.scope().NameScope("Equal");
    const Output number = own.ConstScalar<int32_t>(i, "y");
    chosen.push_back(OpNamed(own, "Equal", {c.output(1), number}));
  }
  RETURN_IF_ERROR(c.scope().status());
  for (int i = 0; i < c.num_inputs(); ++i) {
    ASSIGN_OR_RETURN(const GradientSides sides,
                     SwitchGradients(c.scope(), c.gradient(0), chosen[i], true));
    c.SetDx(i, sides.if_true);
  }
  return absl::OkStatus();
}

absl::Status ExitGradient(GradientContext& c) {
  if (!c.has_dy(0)) return absl::OkStatus();
  WhileContext* loop = GradientLoop(c);
  if (loop == nullptr || !loop->back_prop()) return absl::OkStatus();
  WhileContext* forward = WhileContextOf(c.node());
  if (forward != nullptr && forward->grad_state() != nullptr) {
    return WithErrorKind(InvalidArgument("Second-order gradient for while loops not supported."),
                         kTypeError);
  }
  const bool dense = std::holds_alternative<Output>(c.gradient(0));
  std::vector<Output> entered;
  const std::vector<Output> parts = Components(c.gradient(0));
  for (const Output& part : parts) loop->AddName(part);
  for (const Output& part : parts) {
    EnterOptions options;
    if (dense) options.name = "b_exit";
    ASSIGN_OR_RETURN(const Output enter, AddEnter(c.scope(), part, *loop, options));
    entered.push_back(enter);
  }
  loop->AddLoopEnter(entered[0]);
  c.SetDx(0, FromComponents(c.gradient(0), entered));
  return absl::OkStatus();
}

absl::Status NextIterationGradient(GradientContext& c) {
  c.SetDx(0, c.gradient(0));
  return absl::OkStatus();
}

absl::Status EnterGradient(GradientContext& c) {
  if (!c.has_dy(0)) return absl::OkStatus();
  WhileContext* loop = GradientLoop(c);
  if (loop == nullptr || !loop->back_prop()) {
    c.SetDx(0, c.gradient(0));
    return absl::OkStatus();
  }
  if (c.Attr<bool>("is_constant")) {
    if (const auto* sparse = std::get_if<IndexedSlices>(&c.gradient(0))) {
      ASSIGN_OR_RETURN(const IndexedSlices sum,
                       loop->AddSlicesAccumulator(c.scope(), c.node(), *sparse));
      c.SetDx(0, sum);
    } else {
      ASSIGN_OR_RETURN(const Output sum,
                       loop->AddAccumulator(c.scope(), c.node(), std::get<Output>(c.gradient(0))));
      c.SetDx(0, sum);
    }
    return absl::OkStatus();
  }
  std::vector<Output> exits;
  for (const Output& part : Components(c.gradient(0))) {
    ASSIGN_OR_RETURN(const Output exit, AddExit(c.scope(), part));
    exits.push_back(exit);
    loop->AddLoopExit(exit);
  }
  loop->ExitResult(exits);
  c.SetDx(0, FromComponents(c.gradient(0), exits));
  return absl::OkStatus();
}

}  // namespace muster
