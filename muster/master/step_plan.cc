#include "muster/master/step_plan.h"

#include "muster/graph/optimize.h"
#include "muster/graph/partition.h"

namespace muster {
namespace {

// The one place that knows how graphs are cut.
absl::StatusOr<std::vector<TaskGraph>> CutByTask(const Graph& graph,
                                                 absl::Span<const DeviceAttributes> devices,
                                                 int64_t& /*next_name*/) {
  ASSIGN_OR_RETURN(std::vector<GraphPart> parts, PartitionGraph(graph, devices));
  std::vector<TaskGraph> result;
  for (GraphPart& part : parts) {
    result.push_back({std::string(TaskOfDevice(part.device)), std::move(part.graph)});
  }
  return result;
}

}  // namespace

absl::StatusOr<std::vector<TaskGraph>> SplitStep(std::unique_ptr<Graph> graph,
                                                 absl::Span<const DeviceAttributes> devices,
                                                 const PlanOptions& options, int64_t& next_name) {
  const Graph* functions = graph.get();
  std::unique_ptr<Graph> optimized;
  if (options.optimize) {
    OptimizeOptions portable;
    portable.fuse = false;
    ASSIGN_OR_RETURN(graph, OptimizeGraph(std::move(graph), portable));
    functions = graph.get();
  }
  ASSIGN_OR_RETURN(std::vector<TaskGraph> parts, CutByTask(*graph, devices, next_name));
  for (TaskGraph& part : parts) CopyFunctions(*functions, *part.graph);
  return parts;
}

void ReadClientEnds(const Graph& graph, const DeviceAttributes& client, StepPlan& plan) {
  for (const auto& node : graph.nodes()) {
    if (!node->Attr<bool>("client_terminated").value_or(false)) continue;
    const std::string tensor = node->Attr<std::string>("tensor_name").value_or("");
    std::string key = ClientKey(client, tensor);
    if (node->op() == "_Recv") {
      plan.feeds[tensor] = {node->name(), std::move(key), node->output_types()[0],
                            node->output_shape(0)};
    } else {
      plan.fetch_keys[tensor] = std::move(key);
    }
  }
}

StepPlan::~StepPlan() {
  if (!retired_.load(std::memory_order_relaxed)) return;
  for (const PlanPart& part : parts) {
    if (part.graph.empty()) continue;
    part.worker->DeregisterGraph({}, session, true, part.graph,
                                 [worker = part.worker](absl::StatusOr<Empty>) {});
  }
}

}  // namespace muster
