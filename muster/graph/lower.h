// Functional control flow and function calls written out: If, Case and While become Switch, Merge
// and loops, calls become the nodes of the function, gradients of functions those of its gradient.
// Names are those that TensorFlow's masters
// give.
#pragma once

#include <memory>

#include "absl/container/flat_hash_map.h"

#include "muster/graph/graph.h"

namespace muster {

// Nodes whose op has functions for attributes, or is itself a function of the graph.
bool IsFunctional(const Node& node, const Graph& library);

struct LoweredGraph {
  std::unique_ptr<Graph> graph;  // has the functions of the original
  // The outputs of the original and where their readers read them now. A node that was written out
  // leaves an IdentityN (without outputs: a NoOp) of its name that waits for its effects.
  absl::flat_hash_map<Output, Output> outputs;
  absl::flat_hash_map<const Node*, Node*> nodes;
};

// A copy of `graph` in which every If, Case and While with `_lower_using_switch_merge` and every
// call is written out, those inside functions included. What stays are recursive calls, calls of
// functions that ask not to be inlined (`_noinline`), control flow without that attribute and a
// SymbolicGradient that has an error to report; calls under the function's name become
// PartitionedCall.
absl::StatusOr<LoweredGraph> LowerFunctions(const Graph& graph, const Graph& library);

}  // namespace muster
