// Fetches of reference variables see what the step has made of them.
#pragma once

#include "absl/types/span.h"

#include "muster/graph/graph.h"

namespace muster {

// The variable that a reference refers to: where the chain of nodes that hand it on begins.
const Node* ReferencedVariable(Output reference, const Graph& graph);

// The reference variable whose value `fetch`, a node that hands its input to the caller, reads;
// null where it reads something else.
const Node* FetchedVariable(const Node& fetch, const Graph& graph);

// In TensorFlow the value fetched from a reference variable is the variable's own memory, so that
// sess.run([train_op, global_step]) gives the step after the update; programs count on it. Here a
// read is a snapshot: each of `fetches`, nodes that hand their input to the caller, gets control
// inputs from the nodes that change the variable it reads, but for those that may not run (inside
// branches and loops).
void FetchAfterUpdates(Graph& graph, absl::Span<Node* const> fetches);

}  // namespace muster
