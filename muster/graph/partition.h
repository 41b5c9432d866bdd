// Cuts a placed graph into one graph per device. Where an edge crosses, _Send and _Recv stand at
// its ends.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"

#include "muster/device/device.h"
#include "muster/graph/graph.h"

namespace muster {

struct GraphPart {
  std::string device;
  std::unique_ptr<Graph> graph;
};

// Every node's device must be the name of one of `devices`, which also tell the incarnations. Parts
// come in the order of `devices`, those without nodes left out. A tensor goes to each other device
// once, however many nodes read it there; so does the end of a node that others wait for.
// References are read where they are and sent as values. Unimplemented where an edge inside a loop
// crosses.
absl::StatusOr<std::vector<GraphPart>> PartitionGraph(const Graph& graph,
                                                      absl::Span<const DeviceAttributes> devices);

}  // namespace muster
