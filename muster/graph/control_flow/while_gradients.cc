// The small loops that gradients add to a loop: counters of iterations, and sums over them.
#include <algorithm>

#include "muster/graph/build/emit.h"
#include "muster/graph/control_flow/control_flow_gradients.h"
#include "muster/graph/control_flow/while_context.h"

namespace muster {

absl::Status WhileContext::CloseBackEdge(const Scope& scope, Output merge, Output next) {
  ASSIGN_OR_RETURN(const Output back, AddNextIteration(scope, next));
  return graph_.UpdateInput(*merge.node, 1, back);
}

absl::StatusOr<WhileContext::ForwardCounter> WhileContext::AddForwardCounter(
    const Scope& scope, GradLoopState* outer_state) {
  const Scope outside = scope.WithFreshStatus();
  const Output zero = outside.ConstScalar<int32_t>(0, "f_count");
  RETURN_IF_ERROR(outside.status());
  if (outer_state != nullptr) {
    // Pushes of one run of an inner loop come before those of its next run.
    graph_.AddControlInput(*zero.node, *outer_state->forward_index().node->input(0).node);
  }
  const Scope inside = outside.WithControlFlowContext(this);
  AddName(zero);
  ASSIGN_OR_RETURN(const Output enter, AddEnter(inside, zero, *this, {.name = "f_count"}));
  loop_enters_.push_back(enter);
  ASSIGN_OR_RETURN(const Output merge, AddMerge(inside, {enter, enter}));
  ASSIGN_OR_RETURN(const SwitchOutputs sides, AddSwitch(inside, merge, pivot_));
  const Output index = EmitWithScalar(inside, "Add", sides.if_true, 1);
  RETURN_IF_ERROR(inside.status());
  ASSIGN_OR_RETURN(const Output next, AddNextIteration(inside, index));
  RETURN_IF_ERROR(graph_.UpdateInput(*merge.node, 1, next));
  ASSIGN_OR_RETURN(const Output total, AddExit(inside, sides.if_false, "f_count"));
  loop_exits_.push_back(total);
  ExitResult({total});
  return ForwardCounter{total, next};
}

absl::StatusOr<Output> WhileContext::AddBackwardCounter(const Scope& scope, Output count,
                                                        GradLoopState* outer_state) {
  const Scope outside = scope.WithFreshStatus();
  const Output one = outside.ConstScalar<int32_t>(1, "b_count");
  RETURN_IF_ERROR(outside.status());
  const Scope inside = outside.WithControlFlowContext(this);
  AddName(count);
  ASSIGN_OR_RETURN(const Output enter, AddEnter(inside, count, *this, {.name = "b_count"}));
  loop_enters_.push_back(enter);
  ASSIGN_OR_RETURN(const Output merge, AddMerge(inside, {enter, enter}));
  pivot_for_pred_ = merge;
  ASSIGN_OR_RETURN(const Output more, TryOp(inside, "GreaterEqual", {merge, one}));
  ASSIGN_OR_RETURN(pivot_, TryOp(inside, "LoopCond", {more}, {}, "b_count"));
  ASSIGN_OR_RETURN(const SwitchOutputs sides, AddSwitch(inside, merge, pivot_));
  ASSIGN_OR_RETURN(const Output index, TryOp(inside, "Sub", {sides.if_true, one}));
  pivot_for_body_ = index;
  ASSIGN_OR_RETURN(const Output next, AddNextIteration(inside, index));
  RETURN_IF_ERROR(graph_.UpdateInput(*merge.node, 1, next));
  ASSIGN_OR_RETURN(const Output final_zero, AddExit(inside, sides.if_false, "b_count"));
  loop_exits_.push_back(final_zero);
  if (outer_state != nullptr) {
    ASSIGN_OR_RETURN(Node * sync, outer_state->BackwardSync(inside));
    graph_.AddControlInput(*sync, *final_zero.node);
  }
  ExitResult({final_zero});
  return next;
}

absl::StatusOr<Output> WhileContext::ZerosForAccumulator(const Scope& outside, Node& enter,
                                                         Output gradient) {
  const auto shape = gradient.shape().ToShape();
  if (shape.has_value()) return EmitZerosConst(outside, *shape, gradient.base_dtype(), "b_acc");
  const Output value = enter.input(0);
  WhileContext* outer_loop = outer_ == nullptr ? nullptr : outer_->AsWhile();
  if (outer_loop == nullptr || outer_loop->grad_state() == nullptr) {
    return EmitZeros(outside, EmitShape(outside, value, "Shape", DType::kInt32, /*optimize=*/false),
                     gradient.base_dtype());
  }
  // A nested loop: the shape is recorded per iteration of the outer one.
  GradLoopState* outer_state = grad_state_->outer();
  if (outer_state == nullptr) return Internal("The loop '", name_, "' has no outer gradient");
  const Scope forward = outside.WithControlFlowContext(grad_state_->forward_context()->outer());
  const Output dims = EmitShape(forward, value, "Shape", DType::kInt32, /*optimize=*/false);
  RETURN_IF_ERROR(forward.status());
  ASSIGN_OR_RETURN(const Output stack, outer_state->AddForwardAccumulator(outside, dims));
  ASSIGN_OR_RETURN(const Output real, outer_state->AddAccumulatedValue(outside, stack, dims));
  return EmitZeros(outside, real, gradient.base_dtype());
}

absl::StatusOr<Output> WhileContext::AddAccumulator(const Scope& scope, Node& enter,
                                                    Output gradient) {
  const Scope outside = scope.WithControlFlowContext(outer_).WithFreshStatus();
  ASSIGN_OR_RETURN(const Output zeros, ZerosForAccumulator(outside, enter, gradient));
  RETURN_IF_ERROR(outside.status());
  AddName(zeros);
  ASSIGN_OR_RETURN(const Output entered, AddEnter(scope, zeros, *this, {.name = "b_acc"}));
  loop_enters_.push_back(entered);
  ASSIGN_OR_RETURN(const Output merge, AddMerge(scope, {entered, entered}, "b_acc"));
  ASSIGN_OR_RETURN(const SwitchOutputs sides, AddSwitch(scope, merge, pivot_));
  ASSIGN_OR_RETURN(const Output sum, TryOp(scope, "Add", {sides.if_true, gradient}));
  RETURN_IF_ERROR(CloseBackEdge(scope, merge, sum));
  ASSIGN_OR_RETURN(const Output result, AddExit(scope, sides.if_false, "b_acc"));
  loop_exits_.push_back(result);
  ExitResult({result});
  return result;
}

namespace {

// Zero rows of slices: one row with the shape of the others.
absl::StatusOr<Output> EmptySlices(const Scope& outside, Node& enter, Output values) {
  if (const auto shape = values.shape().ToShape(); shape.has_value() && shape->rank() > 0) {
    Dims dims = shape->dims();
    dims[0] = 1;
    return EmitZerosConst(outside, Shape(dims), values.base_dtype(), "b_acc");
  }
  const Output dense = enter.input(0);
  Output row_shape;
  if (dense.base_dtype() == DType::kResource) {
    const auto& handle = dense.node->output_handle(dense.index);
    const auto known = handle.empty() ? std::nullopt : handle[0].shape.ToShape();
    if (!known.has_value() || known->rank() == 0) {
      return InvalidArgument("Sparse gradients of the variable '", dense.name(),
                             "' inside a while loop need its static shape");
    }
    const Scope own = outside.NameScope("concat");
    const Output first = own.ConstVector({1}, "values_0");
    const std::vector<int32_t> rest(known->dims().begin() + 1, known->dims().end());
    const Output second = own.ConstVector(rest, "values_1");
    const Output axis = own.ConstScalar<int32_t>(0, "axis");
    row_shape = OpNamed(own, "ConcatV2", {std::vector<Output>{first, second}, axis});
  } else {
    const Output shape = EmitShape(outside, dense, "Shape", DType::kInt32, /*optimize=*/false);
    const Output rest = EmitTail(outside, shape);
    const Scope own = outside.NameScope("concat");
    const Output first = own.ConstVector({1}, "values_0");
    const Output axis = own.ConstScalar<int32_t>(0, "axis");
    row_shape = OpNamed(own, "ConcatV2", {std::vector<Output>{first, rest}, axis});
  }
  return EmitZeros(outside, row_shape, values.base_dtype());
}

}  // namespace

absl::StatusOr<IndexedSlices> WhileContext::AddSlicesAccumulator(const Scope& scope, Node& enter,
                                                                 const IndexedSlices& gradient) {
  const Scope outside = scope.WithControlFlowContext(outer_).WithFreshStatus();
  ASSIGN_OR_RETURN(const Output values_zero, EmptySlices(outside, enter, gradient.values));
  const Output indices_zero = EmitZerosConst(outside, Shape({1}), gradient.indices.base_dtype());
  std::vector<Output> initial = {indices_zero, values_zero};
  std::vector<Output> added = {gradient.indices, gradient.values};
  if (gradient.dense_shape) {
    const auto known = gradient.dense_shape.shape().ToShape();
    const DType dtype = gradient.dense_shape.base_dtype();
    initial.push_back(known.has_value()
                          ? EmitZerosConst(outside, *known, dtype)
                          : EmitZerosLike(outside,
                                          EmitShape(outside, enter.input(0), "Shape", dtype, false),
                                          false));
  }
  RETURN_IF_ERROR(outside.status());

  std::vector<Output> enters, merges, next, exits;
  std::vector<SwitchOutputs> sides;
  for (const Output& value : initial) AddName(value);
  for (const Output& value : initial) {
    ASSIGN_OR_RETURN(const Output entered,
                     AddEnter(scope, value, *this, {.use_input_shape = false, .name = "b_acc"}));
    enters.push_back(entered);
  }
  RETURN_IF_ERROR(RefineShape(enters[0], PartialShape::Vector(-1)));
  if (values_zero.shape().known_rank() && values_zero.shape().rank() > 0) {
    PartialShape rows = values_zero.shape();
    rows.Set(0, -1);
    RETURN_IF_ERROR(RefineShape(enters[1], rows));
  }
  loop_enters_.insert(loop_enters_.end(), enters.begin(), enters.end());
  for (const Output& entered : enters) {
    ASSIGN_OR_RETURN(const Output merge, AddMerge(scope, {entered, entered}, "b_acc"));
    merges.push_back(merge);
  }
  for (const Output& merge : merges) {
    ASSIGN_OR_RETURN(const SwitchOutputs both, AddSwitch(scope, merge, pivot_));
    sides.push_back(both);
  }
  const Scope fresh = scope.WithFreshStatus();
  for (size_t i = 0; i < added.size(); ++i)
    next.push_back(EmitConcat(fresh, {sides[i].if_true, added[i]}));
  if (gradient.dense_shape)
    next.push_back(fresh.Op("Maximum", {gradient.dense_shape, sides[2].if_true}));
  RETURN_IF_ERROR(fresh.status());
  for (Output& value : next) {
    ASSIGN_OR_RETURN(value, AddNextIteration(scope, value));
  }
  for (size_t i = 0; i < next.size(); ++i)
    RETURN_IF_ERROR(graph_.UpdateInput(*merges[i].node, 1, next[i]));
  for (const SwitchOutputs& both : sides) {
    ASSIGN_OR_RETURN(const Output exit, AddExit(scope, both.if_false, "b_acc"));
    exits.push_back(exit);
  }
  loop_exits_.insert(loop_exits_.end(), exits.begin(), exits.end());
  ExitResult(exits);
  IndexedSlices result{exits[1], exits[0], Output()};
  if (exits.size() > 2) result.dense_shape = exits[2];
  return result;
}

}  // namespace muster
