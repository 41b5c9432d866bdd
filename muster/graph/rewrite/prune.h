// Cuts a graph down to what one step needs: fed values become arguments, fetched ones results.
#pragma once

#include <memory>
#include <vector>

#include "muster/graph/graph.h"

namespace muster {

// What a step is given and must give. Order matters: argument i is feeds[i], result i is
// fetches[i].
struct StepSignature {
  std::vector<Output> feeds;
  std::vector<Output> fetches;
  std::vector<Node*> targets;

  friend bool operator==(const StepSignature&, const StepSignature&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const StepSignature& s) {
    return H::combine(std::move(h), s.feeds, s.fetches, s.targets);
  }
};

// How fed and fetched values enter and leave the cut graph.
enum class StepBoundary {
  kCallFrame,   // _Arg and _Retval: all feeds are there when the step starts
  kRendezvous,  // _Recv and _Send under StepKey(): feeds and fetches come and go while the step
                // runs (partial runs)
};

// A new graph with the nodes that fetches and targets need, in the order of the original.
// InvalidArgument for a signature that names an output twice as a feed.
absl::StatusOr<std::unique_ptr<Graph>> PruneForStep(
    const Graph& graph, const StepSignature& signature,
    StepBoundary boundary = StepBoundary::kCallFrame);

// Whether `node` is one of `asked` or comes before one of them.
bool IsNeeded(const Node* node, const std::vector<const Node*>& asked);

// The rendezvous key of a fed or fetched tensor of a partial run.
std::string StepKey(absl::string_view tensor_name, bool is_feed);

}  // namespace muster
