// When variables are read and changed, on devices whose nodes run in one order.
//
// What an optimizer computes of a variable and its gradient is best done at once, when the gradient
// is there: nothing of it is kept for later, and calls on a GPU that belong together follow each
// other (device/gpu). So what is computed of a variable alone waits for the value that it is joined
// with, and an assignment comes as soon as all that reads the old value has run.
#pragma once

#include <utility>
#include <vector>

#include "muster/graph/graph.h"

namespace muster {

struct VariableOrder {
  std::vector<std::pair<int, int>> edges;  // (node, node that waits for it): no loop comes of them
  std::vector<int> changes;                // assignments that need not come last, given the edges
};

// `is_constant` and `changes` say which nodes are constants and change variables. Empty for graphs
// with control flow.
VariableOrder OrderVariables(const Graph& graph, const std::vector<bool>& is_constant,
                             const std::vector<bool>& changes);

}  // namespace muster
