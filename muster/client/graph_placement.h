// Where the nodes of a local session's graph are, when its devices are of several types. Decided
// for the whole graph, as a master does: a step that runs a part of it finds every variable on the
// device where another step has made it.
#pragma once

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"

#include "muster/base/mutex.h"
#include "muster/base/status.h"
#include "muster/graph/graph.h"

namespace muster {

// Thread-safe.
class GraphPlacement {
 public:
  // `devices` by name.
  GraphPlacement(std::vector<std::string> devices, bool allow_soft_placement)
      : devices_(std::move(devices)), allow_soft_placement_(allow_soft_placement) {}

  // Asks for the devices of `graph`'s nodes in `step_graph`, a part of it. Nodes with state stay
  // where they are when the graph grows. Does nothing where all devices are of one type.
  absl::Status Apply(const Graph& graph, Graph& step_graph);

 private:
  absl::Status PlaceLocked(const Graph& graph) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::vector<std::string> devices_;
  const bool allow_soft_placement_;
  Mutex mutex_;
  int num_placed_ ABSL_GUARDED_BY(mutex_) = -1;
  absl::flat_hash_map<std::string, int> device_of_ ABSL_GUARDED_BY(mutex_);  // by name
};

}  // namespace muster
