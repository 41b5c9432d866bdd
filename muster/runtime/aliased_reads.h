// What was read from a reference variable and is used after the variable has changed.
//
// In TensorFlow a value read from a reference variable is the variable's own memory: a node that
// runs after an update sees it, however early the read was and however many nodes handed the value
// on (into a branch, into a loop). Programs rely on that: the tokens of synchronous training hold
// the step that was just incremented, and a loop that updates a variable sees the updates through
// the read outside. Here a read is a snapshot, so such nodes read again; all others of the step see
// one and the same value.
#pragma once

#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"

#include "muster/graph/graph.h"

namespace muster {

// How many of a node's first inputs it hands on as they are; 0 for nodes that compute.
int NumPassedInputs(const Node& node);

// Constant once made. Valid for as long as the graph does not change.
class AliasedReads {
 public:
  explicit AliasedReads(const Graph& graph);

  // The node hands on references that it is given in place of values.
  bool passes(const Node& node) const { return passes_[node.id()]; }
  // Input `i`, which comes from a node that passes references, wants the reference: the node passes
  // it on, or reads the variable when it starts.
  bool reads_again(const Node& node, int i) const { return again_.contains({node.id(), i}); }

 private:
  class Finder;

  std::vector<bool> passes_;                        // by node id
  absl::flat_hash_set<std::pair<int, int>> again_;  // node id, input
};

}  // namespace muster
