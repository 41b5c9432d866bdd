// Conditionals: tf.cond of TensorFlow 1.x.
#pragma once

#include <functional>
#include <variant>
#include <vector>

#include "muster/graph/control_flow/control_flow.h"

namespace muster {

// One branch of a conditional: outer tensors enter it through a Switch on the predicate.
class CondContext : public ControlFlowContext {
 public:
  // `pivot` is the predicate's side of the branch (0 false, 1 true).
  static CondContext& Create(const Scope& scope, Output pred, Output pivot, int branch);
  // A branch whose nodes were imported; its values are added by the caller.
  static CondContext& Restore(Graph& graph, std::string name, ControlFlowContext* outer,
                              Output pred, Output pivot, int branch);

  Output pred() const { return pred_; }
  Output pivot() const { return pivot_; }
  int branch() const { return branch_; }

  CondContext* AsCond() override { return this; }
  Output control_pivot() const override { return pivot_; }
  absl::Status AddOpHere(Node& node, const Scope& scope) override;
  absl::StatusOr<Output> AddValue(Output value, const Scope& scope) override;
  // What a branch that returns `value` gives: a Switch of it where it comes from outside.
  absl::StatusOr<Output> AddResult(Output value, const Scope& scope);

 private:
  CondContext(const Scope& scope, Output pred, Output pivot, int branch);
  CondContext(Graph& graph, std::string name, ControlFlowContext* outer, Output pred, Output pivot,
              int branch)
      : ControlFlowContext(graph, std::move(name), outer),
        pred_(pred),
        pivot_(pivot),
        branch_(branch) {}
  Output pred_;
  Output pivot_;
  int branch_;
};

// What a branch returns per result: a tensor, or a node that only has to run.
using BranchResult = std::variant<Output, Node*>;

// Builds a conditional step by step: Create, nodes in true_scope(), FinishTrue, nodes in
// false_scope(), FinishFalse, Merge. `scope` is already named ("cond/").
class CondBuilder {
 public:
  static absl::StatusOr<CondBuilder> Create(const Scope& scope, Output pred);

  const Scope& true_scope() const { return true_.scope; }
  absl::Status FinishTrue(absl::Span<const BranchResult> results) {
    return FinishBranch(true_, results, "true_fn");
  }
  // Requires: FinishTrue was called, as the context of the false branch is named after the true
  // branch's nodes.
  absl::StatusOr<Scope> false_scope();
  absl::Status FinishFalse(absl::Span<const BranchResult> results) {
    return FinishBranch(false_, results, "false_fn");
  }
  absl::StatusOr<std::vector<Output>> Merge();

 private:
  struct Branch {
    Scope scope;
    CondContext* context = nullptr;
    std::vector<Output> results;
    bool finished = false;
  };
  explicit CondBuilder(const Scope& scope)
      : scope_(scope), true_{scope, nullptr, {}, false}, false_{true_} {}
  static absl::Status FinishBranch(Branch& branch, absl::Span<const BranchResult> results,
                                   absl::string_view what);

  Scope scope_;
  Output pred_;
  Output false_pivot_;
  Branch true_;
  Branch false_;
};

// The same in one call. The functions get the scope of their branch.
using BranchFunction = std::function<absl::StatusOr<std::vector<BranchResult>>(const Scope&)>;
absl::StatusOr<std::vector<Output>> Cond(const Scope& scope, Output pred,
                                         const BranchFunction& true_fn,
                                         const BranchFunction& false_fn,
                                         absl::string_view name = "cond");

// Identity of `output` that runs after `before`, colocated with it: the front end's
// with_dependencies.
absl::StatusOr<Output> AddWithDependencies(const Scope& scope, absl::Span<Node* const> before,
                                           Output output);

}  // namespace muster
