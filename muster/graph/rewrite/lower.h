// Functional control flow and function calls, inlined: If, Case and While become Switch, Merge
// and loops, calls become the nodes of the function, gradients of functions those of its gradient.
// Names are those that TensorFlow's masters
// give.
#pragma once

#include <memory>

#include "absl/container/flat_hash_map.h"

#include "muster/graph/graph.h"
#include "muster/graph/rewrite/prune.h"

namespace muster {

// Nodes whose op has functions for attributes, or is itself a function of the graph.
bool IsFunctional(const Node& node, const Graph& library);

struct LoweredGraph {
  std::unique_ptr<Graph> graph;  // has the functions of the original
  // The outputs of the original and where their readers read them now. A node that was inlined
  // leaves an IdentityN (without outputs: a NoOp) of its name that waits for its effects.
  absl::flat_hash_map<Output, Output> outputs;
  absl::flat_hash_map<const Node*, Node*> nodes;

  // What a step of the original is in this graph: feeds go where the readers of the output are;
  // fetches come from the node of that name, which waits for its effects.
  StepSignature Translate(const StepSignature& signature) const;
  // Outputs of this graph that nodes which were inlined have left behind, and what their
  // readers read instead.
  absl::flat_hash_map<Output, Output> Moved() const;
};

// A copy of `graph` in which every If, Case and While with `_lower_using_switch_merge` and every
// call is inlined, those inside functions included. What stays are recursive calls, calls of
// functions that ask not to be inlined (`_noinline`), control flow without that attribute and a
// SymbolicGradient that has an error to report; calls under the function's name become
// PartitionedCall.
absl::StatusOr<LoweredGraph> LowerFunctions(const Graph& graph, const Graph& library);
// The same for the graph of a session, which has its own library; null where nothing has to be
// inlined.
absl::StatusOr<std::shared_ptr<const LoweredGraph>> LowerIfNeeded(const Graph& graph);

}  // namespace muster
