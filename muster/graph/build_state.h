// What building control flow and gradients has to remember per graph.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "muster/graph/control_flow.h"
#include "muster/graph/graph.h"

namespace muster {

// Axes over which the gradients of the two arguments of a broadcasting op are summed.
struct BroadcastAxes {
  Dims x;
  Dims y;
};

struct BuildState {
  std::vector<std::unique_ptr<ControlFlowContext>> contexts;
  // Per pair of static shapes: the front end emits BroadcastGradientArgs once per graph for each.
  std::map<std::pair<std::vector<int64_t>, std::vector<int64_t>>, BroadcastAxes> broadcast_axes;
};

}  // namespace muster
