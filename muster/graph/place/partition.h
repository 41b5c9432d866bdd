// Cuts a placed graph into one graph per device or per task. Where an edge crosses, _Send and _Recv
// stand at its ends.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

#include "muster/device/device.h"
#include "muster/graph/graph.h"

namespace muster {

struct GraphPart {
  std::string device;  // empty in a cut by task
  std::string task;    // "/job:ps/replica:0/task:0"
  std::unique_ptr<Graph> graph;
};

struct PartitionOptions {
  // Devices: what the worker of a task runs; new nodes are named <producer>_G<n>. Tasks: what a
  // master sends to each worker; <producer>_S<n>.
  enum class By : uint8_t { kDevice, kTask };
  By by = By::kDevice;
  // The next n. Shared by the graphs of a session, whose names must differ; null counts from zero.
  int64_t* counter = nullptr;
  // A part of a graph that a master has cut: loops that span devices have their control loops, and
  // nothing is moved.
  bool is_prepared = false;
  // Of a cut by task: values are fed while it runs, and not before (partial runs).
  bool is_partial = false;
  // Floats travel as bfloat16, with less precision.
  bool bfloat16 = false;
};

// A _Recv on a device other than a CPU, or of a value that a client feeds, has this attribute where what it receives can be waited for
// before any other node of its part begins: nothing of the part, and nothing that another step has to
// do, comes before the value.
inline constexpr char kEarlyAttr[] = "_muster_early";

// Every node's device must be the name of one of `devices`, which also tell the incarnations. Parts
// come in the order of `devices`, those without nodes left out. A tensor goes to each other part
// once, however many nodes read it there; so does the end of a node that others wait for, unless
// one of its tensors goes there anyway. Small constants are copied instead of sent. References are
// read where they are and sent as values, after the other inputs of the reader have come. Loops
// that span devices get control loops (control_loops.h). _Send and _Recv nodes that are there
// already stay as they are, except that missing incarnations are filled in. InvalidArgument for
// unknown devices, for references that would have to cross and for loops without a condition.
absl::StatusOr<std::vector<GraphPart>> PartitionGraph(const Graph& graph,
                                                      absl::Span<const DeviceAttributes> devices,
                                                      const PartitionOptions& options = {});

}  // namespace muster
