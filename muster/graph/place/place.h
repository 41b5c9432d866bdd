// Decides on which device each node of a graph runs.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"

#include "muster/graph/graph.h"

namespace muster {

struct PlaceOptions {
  // A device type or number that does not exist, or has no kernel, is ignored instead of being an
  // error; the task never is.
  bool allow_soft_placement = false;
  bool explain = false;
  // Nodes that hold state and were placed before: node id -> device.
  absl::flat_hash_map<int, int> fixed;
  // "/job:worker/replica:0/task:0": its devices come before equal ones of other tasks.
  std::string local_task;
  // The whole name of the device that is preferred where a node asks for no type of device; empty:
  // none.
  std::string default_device;
  // Whether there is a kernel for the node on a type of device: 0 where there is none, and more
  // where it is to be preferred if no type is asked for. Null where there always is one. A node
  // without any may still be asked for on another task, which knows better.
  std::function<int(const Node& node, absl::string_view device_type)> supports;
  // Why `supports` gives 0, for explanations: "there is no kernel of X for GPU". May be null.
  std::function<std::string(const Node& node, absl::string_view device_type)> why_not;
};

struct Placement {
  std::vector<int> devices;          // by node id: which of the devices
  std::vector<std::string> reasons;  // by node id, where asked for: why there, why not elsewhere
};

// `devices` are whole names. Requested names may be partial; of the devices that fit, the one with
// the best type (GPUs first), of the local task, then the first by name is taken. Nodes that are
// colocated (_class) or connected by a reference or resource go to one device. What makes a value
// from nothing goes to its readers, what only looks at a shape to its input. InvalidArgument, in
// TensorFlow's words, for requests that no device meets or that contradict each other. Takes
// O(nodes + edges + devices * different requests that name no task).
absl::StatusOr<Placement> PlaceGraph(const Graph& graph, absl::Span<const std::string> devices,
                                     const PlaceOptions& options = {});

}  // namespace muster
