// Loops: tf.while_loop of TensorFlow 1.x.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "muster/graph/control_flow/control_flow.h"
#include "muster/graph/gradients/gradient_context.h"

namespace muster {

struct WhileSettings {
  int parallel_iterations = 10;
  bool back_prop = true;
  bool swap_memory = false;
  Output maximum_iterations;  // only remembered; WhileLoop builds the counter
};

// The frame of a loop: outer tensors enter it as constants. Also the loop that computes a loop's
// gradients.
class WhileContext : public ControlFlowContext {
 public:
  // InvalidArgument for parallel_iterations < 1.
  static absl::StatusOr<WhileContext*> Create(const Scope& scope, WhileSettings settings,
                                              absl::string_view name = "while_context");
  // A loop whose nodes were imported; its values, enters and exits are added by the caller.
  struct Pivots {
    Output for_pred;
    Output for_body;
    Output condition;
  };
  static WhileContext& Restore(Graph& graph, std::string name, ControlFlowContext* outer,
                               WhileSettings settings, const Pivots& pivots);

  const WhileSettings& settings() const { return settings_; }
  int parallel_iterations() const { return settings_.parallel_iterations; }
  bool back_prop() const { return settings_.back_prop; }
  // The value of LoopCond.
  Output pivot() const { return pivot_; }
  const std::vector<Output>& loop_enters() const { return loop_enters_; }
  const std::vector<Output>& loop_exits() const { return loop_exits_; }
  void AddLoopEnter(Output enter) { loop_enters_.push_back(enter); }
  void AddLoopExit(Output exit) { loop_exits_.push_back(exit); }

  // Set for the loop of a gradient: what it belongs to.
  GradLoopState* grad_state() const { return grad_state_.get(); }
  void set_grad_state(std::shared_ptr<GradLoopState> state) { grad_state_ = std::move(state); }

  WhileContext* AsWhile() override { return this; }
  Output control_pivot() const override {
    return pivot_for_body_ ? pivot_for_body_ : pivot_for_pred_;
  }
  Output pivot_for_pred() const { return pivot_for_pred_; }
  Output pivot_for_body() const { return pivot_for_body_; }
  absl::Status AddOp(Node& node, const Scope& scope) override;
  absl::Status AddOpHere(Node& node, const Scope& scope) override;
  absl::StatusOr<Output> AddValue(Output value, const Scope& scope) override;

  // --- Building the loop: called in this order by WhileBuilder. `scope` has this context.
  absl::StatusOr<std::vector<Output>> EnterVariables(const Scope& scope,
                                                     const std::vector<Output>& variables,
                                                     const std::vector<PartialShape>& invariants);
  absl::StatusOr<std::vector<Output>> SetCondition(const Scope& scope, Output condition);
  absl::StatusOr<std::vector<Output>> CloseLoop(const Scope& scope,
                                                const std::vector<Output>& next);

  // --- Loops within the loop that gradients need (while_gradients.cc). Scopes have the context in
  // which the loop is used, unless said otherwise.
  struct ForwardCounter {
    Output total;  // iterations, outside the loop
    Output next;   // the back edge: stack pushes come before it
  };
  absl::StatusOr<ForwardCounter> AddForwardCounter(const Scope& scope, GradLoopState* outer_state);
  // The back edge of a counter from `count` down to zero, which drives this loop.
  absl::StatusOr<Output> AddBackwardCounter(const Scope& scope, Output count,
                                            GradLoopState* outer_state);
  // Sums `gradient` over the iterations; `enter` is the constant of the forward loop. `scope` has
  // this context.
  absl::StatusOr<Output> AddAccumulator(const Scope& scope, Node& enter, Output gradient);
  absl::StatusOr<IndexedSlices> AddSlicesAccumulator(const Scope& scope, Node& enter,
                                                     const IndexedSlices& gradient);

 private:
  WhileContext(const Scope& scope, WhileSettings settings, absl::string_view name)
      : ControlFlowContext(scope, name), settings_(settings) {}
  WhileContext(Graph& graph, std::string name, ControlFlowContext* outer, WhileSettings settings,
               const Pivots& pivots)
      : ControlFlowContext(graph, std::move(name), outer),
        settings_(settings),
        pivot_for_pred_(pivots.for_pred),
        pivot_for_body_(pivots.for_body),
        pivot_(pivots.condition) {}
  absl::Status FixControlInputs(const Scope& scope, absl::Span<const Output> enters);
  absl::StatusOr<Output> ZerosForAccumulator(const Scope& outside, Node& enter, Output gradient);
  // A loop variable: Enter, Merge and Switch on the pivot. The back edge is closed by the caller.
  struct Variable {
    Output enter;
    Output merge;
    SwitchOutputs sides;
  };
  absl::Status CloseBackEdge(const Scope& scope, Output merge, Output next);

  WhileSettings settings_;
  Output pivot_for_pred_;  // controls constants of the condition
  Output pivot_for_body_;  // and of the body
  Output pivot_;
  std::vector<Output> loop_enters_;
  std::vector<Output> loop_exits_;
  std::shared_ptr<GradLoopState> grad_state_;
  std::vector<Output> merges_;  // while the loop is being built
  std::vector<SwitchOutputs> switches_;
};

// Builds a loop step by step: Create, the condition over condition_variables(), SetCondition, the
// body over body_variables(), Finish. Nodes of condition and body are made in scope(). `scope` is
// already named ("while/").
class WhileBuilder {
 public:
  // Invariants default to the shapes of the variables.
  static absl::StatusOr<WhileBuilder> Create(const Scope& scope, std::vector<Output> variables,
                                             std::optional<std::vector<PartialShape>> invariants,
                                             WhileSettings settings);

  const Scope& scope() const { return scope_; }
  WhileContext& context() const { return *context_; }
  const std::vector<Output>& condition_variables() const { return condition_variables_; }
  absl::Status SetCondition(Output condition);
  const std::vector<Output>& body_variables() const { return body_variables_; }
  // The values after the loop.
  absl::StatusOr<std::vector<Output>> Finish(const std::vector<Output>& next);

 private:
  WhileBuilder(Scope scope, WhileContext& context) : scope_(std::move(scope)), context_(&context) {}
  Scope scope_;
  WhileContext* context_;
  std::vector<Output> condition_variables_;
  std::vector<Output> body_variables_;
};

struct WhileOptions {
  std::optional<std::vector<PartialShape>> shape_invariants;
  int parallel_iterations = 10;
  bool back_prop = true;
  bool swap_memory = false;
  // The limit on iterations: a scalar tensor, or nothing.
  Output maximum_iterations;
  std::string name = "while";
};
using ConditionFunction =
    std::function<absl::StatusOr<Output>(const Scope&, const std::vector<Output>&)>;
using BodyFunction =
    std::function<absl::StatusOr<std::vector<Output>>(const Scope&, const std::vector<Output>&)>;
// The same in one call.
absl::StatusOr<std::vector<Output>> WhileLoop(const Scope& scope, std::vector<Output> variables,
                                              const ConditionFunction& condition,
                                              const BodyFunction& body, WhileOptions options = {});

}  // namespace muster
