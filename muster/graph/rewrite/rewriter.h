// What passes over a step's graph share: they record replacements of inputs, control inputs and
// nodes, and Commit then applies all of them and drops nodes that are no longer needed.
#pragma once

#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"

#include "muster/graph/graph.h"

namespace muster {

// Confined to one thread; the graph must not change under it.
class GraphRewriter {
 public:
  // Nodes that nothing reads or waits for now are results of the graph: they stay, as do nodes with
  // effects.
  explicit GraphRewriter(Graph& graph);

  Graph& graph() const { return graph_; }
  // The nodes such that inputs come before their readers, back edges of loops aside. Of the last
  // Commit.
  std::vector<Node*> Order() const;

  // The output that an input reads, after the replacements recorded so far.
  Output Resolve(Output output) const;
  Output Input(const Node& node, int i) const { return Resolve(node.input(i)); }
  // The same for nodes that are waited for: the node itself, or what was noted with WaitInstead.
  std::vector<Node*> ControlInputs(const Node& node) const;
  // What any of the nodes (null: none) waits for, each once.
  std::vector<Node*> ControlInputsOfAll(absl::Span<const Node* const> nodes) const;

  // How many nodes waited for it at the last Commit.
  int num_waiting(const Node& node) const { return waiting_[node.id()]; }
  bool is_result(const Node& node) const { return is_result_[node.id()]; }
  // Only its one reader sees the output, so that the node may be fused into the reader.
  bool IsHidden(const Node& node) const;
  bool changed() const { return changed_; }

  // Readers of `from` read `to`. Requires: same base type, and `to` does not come from `from`.
  void Replace(Output from, Output to);
  // Nodes that wait for `node` wait for all of `others`.
  void WaitInstead(const Node& node, std::vector<Node*> others);
  // Adds a node on the device of `old`; the name is temporary where it replaces another node.
  absl::StatusOr<Node*> Add(const Node& old, NodeSpec spec);
  // Adds a node in the place of `old`: same outputs, name, position in the graph, device and
  // waiting nodes.
  absl::StatusOr<Node*> Substitute(Node& old, NodeSpec spec);

  // Applies the changes. Invalidates nodes that are not in the graph afterwards.
  void Commit();

 private:
  void CountWaiting();

  Graph& graph_;
  bool changed_ = false;
  // By node id.
  std::vector<int> waiting_;
  std::vector<bool> is_result_;
  std::vector<int> place_;  // position of a node that was added: where the old one is
  absl::flat_hash_map<Output, Output> instead_;
  absl::flat_hash_map<const Node*, std::vector<Node*>> wait_instead_;
  absl::flat_hash_map<const Node*, const Node*> takes_name_of_;
};

// --- Questions that several passes ask
// ------------------------------------------------------------------------------- A node of the
// executor's own: it decides what is dead, or in which frame values are.
bool IsControlFlow(const Node& node);
// Outputs may be dead although the node itself ran: a control edge from it does not tell.
bool MayKillOutputs(const Node& node);
// The value of a Const; null for all others.
const Tensor* ConstValue(const Node& node);
// The first output shares the memory of the first input.
bool HandsOnMemory(const Node& node);
// Another node writes into the memory of its output (InplaceAdd and its kin), so that it must have
// memory of its own in every step.
bool IsWrittenTo(const Node& node);
// A reference, or a handle to something that changes.
bool IsMutable(DType type);

}  // namespace muster
