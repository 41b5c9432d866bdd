#include "muster/graph/optimize.h"

namespace muster {

absl::StatusOr<std::unique_ptr<Graph>> OptimizeGraph(std::unique_ptr<Graph> graph, const OptimizeOptions&) {
  return graph;
}

}  // namespace muster
