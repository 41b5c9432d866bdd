// What a traced step did, as TensorFlow's StepStats.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"

#include "muster/base/clock.h"
#include "muster/graph/graph.h"
#include "muster/runtime/trace.h"

namespace muster {

using TraceLabel = absl::FunctionRef<std::string(const NodeTrace&)>;

// A serialized StepStats: traces by device, sorted by their start. `clock` is the one that took the
// times.
std::string SerializeStepStats(std::vector<NodeTrace> traces, TraceLabel label, const Clock& clock);

// Labels "name = Op(input, input:1, ^control)" from the graphs that ran.
std::string SerializeStepStats(std::vector<NodeTrace> traces,
                               absl::Span<const std::shared_ptr<const Graph>> graphs,
                               const Clock& clock);

// A serialized GraphDef.
absl::StatusOr<std::string> SerializeGraph(const Graph& graph);

}  // namespace muster
