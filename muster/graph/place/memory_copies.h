// Copies between the memory of the host and that of a device, inside the part of a graph that runs
// on it.
#pragma once

#include <functional>
#include <vector>

#include "muster/graph/graph.h"

namespace muster {

// Which inputs and outputs of a node are in host memory, on a device that has its own.
struct HostArgs {
  std::vector<bool> inputs;
  std::vector<bool> outputs;
};

// Wherever a node reads a tensor in another memory than it was made in, a _MusterCopyToHost or
// _MusterCopyToDevice stands between the two, one for all readers of an output. References are not
// copied: a variable is in one memory only. Where the graph is that of a step (`has_results`), what
// only _Retval nodes read is a result: it need not be there before the step ends.
absl::Status AddMemoryCopies(Graph& part, bool has_results,
                             const std::function<absl::StatusOr<HostArgs>(const Node&)>& host_args);

}  // namespace muster
