// Decides on which device each node of a graph runs.
#pragma once

#include <string>
#include <vector>

#include "absl/types/span.h"

#include "muster/graph/graph.h"

namespace muster {

struct PlaceOptions {
  // A device type or number that does not exist is ignored instead of being an error; the task
  // never is.
  bool allow_soft_placement = false;
  bool explain = false;
};

struct Placement {
  std::vector<int> devices;          // by node id: which of the devices
  std::vector<std::string> reasons;  // by node id, where asked for
};

// `devices` are whole names, the default one first. Requested names may be partial. Nodes that are
// colocated (_class) or connected by a reference or resource go to one device. InvalidArgument, in
// TensorFlow's words, for requests that no device meets or that contradict each other.
absl::StatusOr<Placement> PlaceGraph(const Graph& graph, absl::Span<const std::string> devices,
                                     const PlaceOptions& options = {});

}  // namespace muster
