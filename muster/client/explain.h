// Why nodes run where they do.
#pragma once

#include <string>
#include <vector>

#include "absl/types/span.h"

#include "muster/base/status.h"
#include "muster/graph/graph.h"

namespace muster {

struct ExplainOptions {
  bool allow_soft_placement = false;
  // "/job:worker/replica:0/task:0": the task of the master, which comes first among equals.
  std::string local_task;
  std::string node;  // only this one; empty: all
};

// One text for each node: its device, the rule that put it there and why it is not elsewhere.
// NotFound for a node that is not there.
absl::StatusOr<std::vector<std::string>> ExplainPlacement(const Graph& graph,
                                                          absl::Span<const std::string> devices,
                                                          const ExplainOptions& options = {});

}  // namespace muster
