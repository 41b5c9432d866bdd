// Batches small variables that one task reads from another: a hundred messages, keys and nodes at
// both ends cost more than the bytes.
#pragma once

#include "absl/functional/function_ref.h"

#include "muster/graph/graph.h"

namespace muster {

// Rewrites a placed graph that has not been cut yet. Variables that are read at the start of the
// step by nodes of one other device go through a _MusterPack and a _MusterUnpack, so that the cut
// finds one tensor. Only tasks for which `understands` is true get such nodes. `next_name` counts
// them.
absl::Status PackReads(Graph& graph, absl::FunctionRef<bool(absl::string_view task)> understands,
                       int64_t& next_name);

}  // namespace muster
