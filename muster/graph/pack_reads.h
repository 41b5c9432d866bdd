// Small variables that one task reads of another travel together: a hundred messages, keys and
// nodes at both ends cost more than the bytes.
#pragma once

#include "absl/functional/function_ref.h"

#include "muster/graph/graph.h"

namespace muster {

// Of a placed graph that has not been cut yet. What is read when the step begins, and by many
// nodes of one device, goes through a _MusterPack and a _MusterUnpack, so that the cut finds one
// tensor. Only tasks that `understands` is true of have such nodes. `next_name` counts them.
absl::Status PackReads(Graph& graph, absl::FunctionRef<bool(absl::string_view task)> understands,
                       int64_t& next_name);

}  // namespace muster
