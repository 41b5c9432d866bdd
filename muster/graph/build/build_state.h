// What building control flow and gradients has to remember per graph.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"

#include "muster/graph/control_flow/control_flow.h"
#include "muster/graph/graph.h"

namespace muster {

// Axes over which the gradients of the two arguments of a broadcasting op are summed.
struct BroadcastAxes {
  Dims x;
  Dims y;
};

struct BuildState {
  std::vector<std::unique_ptr<ControlFlowContext>> contexts;
  absl::flat_hash_set<const Node*> unfetchable;
  absl::flat_hash_set<Output> unfeedable;
  // Per pair of static shapes: the front end emits BroadcastGradientArgs once per graph for each.
  std::map<std::pair<std::vector<int64_t>, std::vector<int64_t>>, BroadcastAxes> broadcast_axes;
  // (static shape, axes) for which the constants of a reduction's gradient have been emitted: once
  // per graph as well.
  std::set<std::pair<std::vector<int64_t>, std::vector<int64_t>>> reduced_shapes;
};

}  // namespace muster
