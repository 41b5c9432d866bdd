// Gradients of conditionals and loops. The loop of a gradient runs as often as the forward loop
// did, backwards; forward values that it needs are pushed on stacks by the forward loop and popped
// here.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"

#include "muster/graph/control_flow/control_flow.h"
#include "muster/graph/control_flow/while_context.h"
#include "muster/graph/gradients/gradient_context.h"

namespace muster {

// A forward loop together with the loop of its gradient, for one call of Gradients.
class GradLoopState {
 public:
  // Adds the counters of both loops. `scope` is the one in which Gradients was called, `outer` the
  // state of the loop around the forward loop where that is differentiated too.
  static absl::StatusOr<std::shared_ptr<GradLoopState>> Create(const Scope& scope,
                                                               WhileContext& forward,
                                                               GradLoopState* outer);

  WhileContext* forward_context() const { return forward_; }
  WhileContext* grad_context() const { return backward_; }
  GradLoopState* outer() const { return outer_; }
  // Back edges of the two counters.
  Output forward_index() const { return forward_index_; }
  // Pops of an iteration run before it.
  absl::StatusOr<Node*> BackwardSync(const Scope& scope);

  // Records `value` of the forward loop in every iteration: gives the stack.
  absl::StatusOr<Output> AddForwardAccumulator(const Scope& scope, Output value,
                                               bool dead_branch = false);
  // The recorded value of the iteration that the gradient is at.
  absl::StatusOr<Output> AddAccumulatedValue(const Scope& scope, Output stack, Output value,
                                             bool dead_branch = false);
  // What stands for the forward value in the gradient's loop: a constant, an invariant, or a
  // recorded value.
  absl::StatusOr<Output> RealValue(Output value, const Scope& scope);
  // The recorded predicate of a conditional within the loop, recorded now if need be.
  absl::StatusOr<Output> RealPredicate(Output pred, const Scope& scope);

  absl::flat_hash_map<Output, Output>& history() { return history_; }
  // Merges of the gradient for the Switch of each loop variable, in the order in which they were
  // made.
  std::vector<std::pair<const Node*, Gradient>>& switch_merges() { return switch_merges_; }

  const std::vector<Output>& forward_exits() const { return forward_exits_; }
  std::vector<Output> unused_exits;
  std::vector<Output> deferred_exits;
  int pending_exits = 0;

 private:
  GradLoopState() = default;
  absl::StatusOr<Node*> ForwardSync(const Scope& scope);
  // `scope` as it was where Gradients was called.
  Scope CallScope(const Scope& scope) const { return scope.WithControlFlowContext(called_in_); }

  GradLoopState* outer_ = nullptr;
  ControlFlowContext* called_in_ = nullptr;
  WhileContext* forward_ = nullptr;
  WhileContext* backward_ = nullptr;
  Output forward_index_;
  Output backward_index_;
  Node* forward_sync_ = nullptr;
  Node* backward_sync_ = nullptr;
  absl::flat_hash_map<Output, Output> history_;
  std::vector<std::pair<const Node*, Gradient>> switch_merges_;
  std::vector<Output> forward_exits_;
};

// All loops of one call of Gradients. Empty when there are none.
class LoopGradients {
 public:
  bool empty() const { return states_.empty(); }
  // The state of the loop that the Exit `node` leaves; made on the first call. Adds all exits of
  // the loop to `between`.
  absl::Status AddLoop(const Scope& scope, Node& exit, std::vector<Node*>& between_list,
                       absl::flat_hash_set<Node*>& between);
  // The state for the loop the node is in. An Exit counts as outside of its loop when `before` is
  // set.
  GradLoopState* StateFor(const Node& node, bool before) const;
  // Where the gradient of the node is built: inside the loop of the gradient.
  Scope ScopeFor(const Node& node, bool before, const Scope& scope) const;
  // Exits without readers that must still enter the gradient's loop.
  std::vector<Output> UnusedExits(absl::flat_hash_map<Node*, int>& pending,
                                  const absl::flat_hash_set<Node*>& to_nodes);
  absl::StatusOr<Output> ZerosForExit(const Scope& scope, Output exit) const;
  // Zeros for output `i` of `node`, from which no gradient came; nothing for the Switch of a loop
  // variable.
  absl::StatusOr<Gradient> ZerosLike(const Scope& scope, Node& node, int i) const;
  // Closes loops whose variables do not depend on their former value.
  absl::Status Finish(const Scope& scope);

 private:
  GradLoopState* Find(ControlFlowContext* context) const;
  std::vector<std::pair<WhileContext*, std::shared_ptr<GradLoopState>>> states_;
};

// Zeros for output `i` of `node` outside of loops: under the right side of the conditional for a
// Switch.
absl::StatusOr<Gradient> ZerosLikeOutsideLoop(const Scope& scope, Node& node, int i);

// Gradient functions of the control-flow ops.
absl::Status SwitchGradient(GradientContext& c);         // Switch, RefSwitch
absl::Status MergeGradient(GradientContext& c);          // Merge, RefMerge
absl::Status ExitGradient(GradientContext& c);           // Exit, RefExit
absl::Status NextIterationGradient(GradientContext& c);  // NextIteration, RefNextIteration
absl::Status EnterGradient(GradientContext& c);          // Enter, RefEnter

}  // namespace muster
