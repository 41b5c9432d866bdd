// Control flow of TensorFlow 1.x while a graph is built: a context watches the nodes made inside a
// branch or a loop body and routes what they take from outside through Switch or Enter.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"

#include "muster/base/status.h"
#include "muster/graph/build/scope.h"
#include "muster/graph/graph.h"

namespace muster {

class CondContext;
class WhileContext;
class GradLoopState;

// Owned by its graph (BuildState) and confined to it. The "current" context of the front end is the
// one of the scope that is passed along.
class ControlFlowContext {
 public:
  virtual ~ControlFlowContext() = default;
  ControlFlowContext(const ControlFlowContext&) = delete;
  ControlFlowContext& operator=(const ControlFlowContext&) = delete;

  const std::string& name() const { return name_; }
  ControlFlowContext* outer() const { return outer_; }
  const std::vector<ControlFlowContext*>& nested() const { return nested_; }
  virtual CondContext* AsCond() { return nullptr; }
  virtual WhileContext* AsWhile() { return nullptr; }
  // The innermost while context around this one, itself included; null when there is none.
  WhileContext* while_context();
  // Nodes without inputs run after it. May be empty while the context is being set up.
  virtual Output control_pivot() const = 0;

  // Called right after `node` was made inside this context: rewires inputs that come from outside
  // (the Switch or Enter nodes are therefore made after their consumer) and adds control edges
  // where the node has no inputs. `scope` is where the node was made, with the node's own name as
  // prefix.
  virtual absl::Status AddOp(Node& node, const Scope& scope) { return AddOpHere(node, scope); }
  // The same without moving the node to another context.
  virtual absl::Status AddOpHere(Node& node, const Scope& scope) = 0;
  // What stands for `value` in this context.
  virtual absl::StatusOr<Output> AddValue(Output value, const Scope& scope) = 0;

  // `value` is known here as it is.
  void AddName(Output value) { values_.insert(value); }
  // `value` comes from outside; `inside` stands for it.
  void AddExternal(Output value, Output inside) { external_values_[value] = inside; }
  // Makes results of this context known to the outer one.
  void ExitResult(absl::Span<const Output> results);

  const absl::flat_hash_set<Output>& values() const { return values_; }
  const absl::flat_hash_map<Output, Output>& external_values() const { return external_values_; }

 protected:
  // Names the context below the scope's prefix.
  ControlFlowContext(const Scope& scope, absl::string_view name);
  // A context of an imported graph: its nodes exist, and `name` is used as it stands.
  ControlFlowContext(Graph& graph, std::string name, ControlFlowContext* outer);
  // Takes away control edges into `node` from outside the enclosing loop; those are returned.
  std::vector<Node*> RemoveExternalControlEdges(Node& node);
  Output ExternalOr(Output value) const;

  std::string name_;
  Graph& graph_;
  ControlFlowContext* outer_;
  std::vector<ControlFlowContext*> nested_;
  // Outputs seen in this context, and for those from outside what to use instead.
  absl::flat_hash_set<Output> values_;
  absl::flat_hash_map<Output, Output> external_values_;
};

// Called by Scope for every new node: checks that the inputs are usable where the node is, and
// registers it in its context.
absl::Status EnterControlFlowContext(Node& node, const Scope& scope);

// --- Questions about nodes
// -------------------------------------------------------------------------------------------
inline bool IsSwitch(const Node& node) {
  return node.op() == "Switch" || node.op() == "RefSwitch";
}
inline bool IsMerge(const Node& node) {
  return node.op() == "Merge" || node.op() == "RefMerge";
}
inline bool IsLoopEnter(const Node& node) {
  return node.op() == "Enter" || node.op() == "RefEnter";
}
inline bool IsLoopExit(const Node& node) {
  return node.op() == "Exit" || node.op() == "RefExit";
}
bool IsLoopConstantEnter(const Node& node);
// The Switch of a loop variable, as opposed to that of a conditional.
bool IsLoopSwitch(const Node& node);
// The constant Enter that `value` comes from through switches and identities; null when there is
// none.
Node* LoopConstantEnter(Output value);
// The context in which the outputs of the node are seen: for Exit the one around the loop.
ControlFlowContext* OutputContext(const Node& node);
WhileContext* WhileContextOf(const Node& node);
// `outer` is `context` or contains it; null contains everything.
bool IsContainingContext(ControlFlowContext* context, ControlFlowContext* outer);

// Nodes that exist on one side of a conditional or inside a loop only cannot be fetched, their
// outputs not be fed.
bool IsFetchable(const Node& node);
bool IsFeedable(Output output);
void PreventFetching(Node& node);
void PreventFeeding(Output output);

// --- Nodes
// -----------------------------------------------------------------------------------------------------------
struct SwitchOutputs {
  Output if_false;
  Output if_true;
  Output branch(int i) const { return i == 0 ? if_false : if_true; }
};
absl::StatusOr<Output> TryOp(const Scope& scope, absl::string_view op,
                             std::vector<NodeInput> inputs, AttrMap attrs = {},
                             absl::string_view name = "");
// A Switch where the scope is, or one (RefSwitch for references) that is colocated with the data.
absl::StatusOr<SwitchOutputs> AddSwitch(const Scope& scope, Output data, Output pred,
                                        absl::string_view name = "Switch");
absl::StatusOr<SwitchOutputs> AddColocatedSwitch(const Scope& scope, Output data, Output pred,
                                                 absl::string_view name = "Switch");
absl::StatusOr<Output> AddMerge(const Scope& scope, std::vector<Output> inputs,
                                absl::string_view name = "Merge");
struct EnterOptions {
  bool is_constant = false;
  bool use_input_shape = true;
  absl::string_view name = "";  // the op's own
};
absl::StatusOr<Output> AddEnter(const Scope& scope, Output data, const WhileContext& frame,
                                EnterOptions options);
absl::StatusOr<Output> AddNextIteration(const Scope& scope, Output data);
absl::StatusOr<Output> AddExit(const Scope& scope, Output data, absl::string_view name = "");
// Identity, or RefIdentity for references.
absl::StatusOr<Output> AddIdentity(const Scope& scope, Output data, absl::string_view name = "");

// Adds what `shape` knows to the static shape; InvalidArgument when they contradict each other.
absl::Status RefineShape(Output output, const PartialShape& shape);

}  // namespace muster
