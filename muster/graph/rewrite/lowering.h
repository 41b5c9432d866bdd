// The graph in the middle of being lowered: what LowerFunctions (lower.h) is made of. Its parts are
// in three files: lower.cc adds and replaces nodes, lower_control_flow.cc rewrites If, Case and
// While, inline_function.cc puts the body of a function where it is called.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"

#include "muster/graph/rewrite/lower.h"

namespace muster {

// Prefix of the names in the attribute `_class`, which lists the nodes that a node is placed with.
inline constexpr absl::string_view kColocation = "loc:@";

// Confined to one thread; Run is called once.
class Lowering {
 public:
  Lowering(const Graph& original, const Graph& library)
      : original_(original), library_(library), result_(std::make_unique<Graph>()) {}

  absl::StatusOr<LoweredGraph> Run();

 private:
  // The functions that a node was inlined from, innermost first.
  struct CallChain {
    std::string function;
    std::shared_ptr<const CallChain> outer;
  };

  // What must have run before something that waits for a call: the nodes that the function names,
  // all that have effects, or all that have effects also where only a result is read.
  enum class Effects { kControlResults, kAllStateful, kAllStatefulBeforeResults };

  // --- The graph as it is being rewritten (lower.cc) ------------------------------------------

  absl::Status CopyNodes();
  // `prefix/_7`: the numbers count on through the whole graph.
  std::string NewName(absl::string_view prefix);
  absl::StatusOr<Node*> Add(NodeSpec spec);
  // `node` runs after `before`.
  void Wait(Node& node, Node& before);
  // Readers of `node` read `outputs`; nodes that wait for it wait for `executed`. In its place
  // stays a node that can be fetched and run under its name.
  absl::Status Replace(Node& node, std::vector<Output> outputs, Node& executed);
  absl::Status Lower(Node& node);
  LoweredGraph Finish();

  // --- If, Case and While (lower_control_flow.cc) ---------------------------------------------

  absl::Status LowerIf(Node& node);
  absl::Status LowerCase(Node& node);
  // If: branch 0 is taken when the predicate holds. Case: branch i for index i.
  absl::Status LowerBranches(Node& node, const std::vector<FunctionRef>& branches,
                             const std::vector<std::string>& names);
  absl::Status LowerWhile(Node& node);
  // The node that calls a branch or body; it is inlined when the loop over the nodes reaches it.
  absl::StatusOr<Node*> AddCall(const FunctionRef& function, std::string name, const Node& caller,
                                std::vector<Output> inputs, std::vector<Node*> control);

  // --- Calls (inline_function.cc) --------------------------------------------------------------

  // A call under the function's own name.
  absl::Status LowerDirectCall(Node& node);
  // PartitionedCall and StatefulPartitionedCall.
  absl::Status LowerCall(Node& node);
  // A function without a gradient, or with another signature, is the node's error to report when it
  // runs.
  absl::Status LowerGradient(Node& node);
  bool MayInline(const FunctionRef& function) const;
  // Whether the node that is being lowered came out of this function.
  bool IsRecursive(const std::string& function) const;
  absl::StatusOr<const Graph*> Body(const FunctionRef& function);
  absl::Status Inline(Node& node, const FunctionRef& function, Effects effects);
  // A node that runs after everything in the body that has effects; null where nothing has. It does
  // not die with branches that are not taken. What loops do is done when they are left.
  absl::StatusOr<Node*> AfterEffects(const Node& caller, const Graph& body,
                                     const absl::flat_hash_map<const Node*, Node*>& copies);
  absl::Status CopyBody(const Node& caller, const Graph& body, const std::vector<Node*>& arguments,
                        Node* start, absl::flat_hash_map<const Node*, Node*>& copies,
                        std::vector<Output>& results);

  const Graph& original_;
  const Graph& library_;
  std::unique_ptr<Graph> result_;
  int next_number_ = 0;
  absl::flat_hash_map<const Node*, Node*> copies_;
  absl::flat_hash_map<const Node*, std::vector<Node*>> waiting_;
  absl::flat_hash_map<Output, Output> moved_;
  absl::flat_hash_map<const Node*, Node*> stand_ins_;
  absl::flat_hash_map<const Node*, std::string> takes_name_;
  absl::flat_hash_set<const Node*> branch_calls_;
  absl::flat_hash_map<const Node*, std::shared_ptr<const CallChain>> chains_;
  std::shared_ptr<const CallChain> chain_;  // of the node that is being lowered
  // Nodes that call functions are made from these and gone before they are.
  absl::flat_hash_map<std::string, std::unique_ptr<Graph>> bodies_;
};

// The value of `_class` for a node that is placed with `node`.
inline AttrValue ColocateWith(const Node& node) {
  return std::vector<std::string>{absl::StrCat(kColocation, node.name())};
}

// Whether the attribute is there and true.
inline bool HasTrueAttr(const AttrMap& attrs, absl::string_view name) {
  const auto found = attrs.find(name);
  const bool* const value = found == attrs.end() ? nullptr : found->second.get<bool>();
  return value != nullptr && *value;
}

}  // namespace muster
