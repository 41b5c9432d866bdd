// Copies what a step needs of a graph.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"

#include "muster/base/status.h"
#include "muster/graph/graph.h"

namespace muster {

// Some outputs are replaced: by values that are fed, or by other outputs of the graph. Nodes that
// read a replaced output read its stand-in, a node that the caller adds to the copy. The methods
// are called in the order in which they are declared.
class StepCopy {
 public:
  // `graph` must outlive this.
  explicit StepCopy(const Graph& graph);

  // By something that is not in the graph; false where it is replaced already.
  bool Replace(const Output& output);
  // By `source`, which must have its type; false where it is replaced already.
  bool Connect(const Output& replaced, const Output& source);

  // What the step is for: finds everything that this needs.
  void Need(const std::vector<Output>& outputs, const std::vector<Node*>& nodes);
  // Whether something that is needed reads it.
  bool IsRead(const Output& replaced) const { return read_.contains(replaced); }

  Graph& copy() { return *copy_; }
  // `prefix`, followed by underscores until neither graph has such a node.
  std::string FreshName(std::string prefix) const;
  // A node of the copy, in the place of a replaced output.
  void SetStandIn(const Output& replaced, const Output& by) { stand_ins_[replaced] = by; }

  // Copies the nodes that are needed, in their order. `finish` gets each one and its copy, whose
  // inputs may be absent yet: back edges of loops, connections, graphs imported unordered.
  absl::Status CopyNodes(absl::FunctionRef<absl::Status(const Node& original, Node& copy)> finish);
  // In the copy; no output while that has no node for it.
  Output Mapped(const Output& output) const;
  // Inputs that were absent, now that every node is there.
  absl::Status CloseGaps();
  std::unique_ptr<Graph> Take() { return std::move(copy_); }

 private:
  void Need(const Output& output);
  void Need(const Node* node);
  bool IsReplaced(const Output& output) const {
    return fed_.contains(output) || connected_.contains(output);
  }
  // Whether nodes that wait for `node` wait for its stand-in: a placeholder never runs.
  bool IsReplaced(const Node& node) const;
  Node* MappedControl(const Node& before) const;

  const Graph& graph_;
  std::unique_ptr<Graph> copy_ = std::make_unique<Graph>();
  absl::flat_hash_set<Output> fed_;
  absl::flat_hash_map<Output, Output> connected_;  // by what is replaced
  absl::flat_hash_set<Output> read_;               // of those two
  absl::flat_hash_set<const Node*> needed_;
  std::vector<const Node*> open_;
  absl::flat_hash_map<Output, Output> stand_ins_;
  absl::flat_hash_map<const Node*, Node*> copies_;
  std::vector<const Node*> order_;
  std::vector<std::pair<const Node*, const Node*>> late_control_;
};

}  // namespace muster
