#include "muster/master/step_plan.h"

#include "muster/graph/function_proto.h"
#include "muster/graph/optimize.h"
#include "muster/graph/partition.h"

namespace muster {

absl::StatusOr<std::vector<TaskGraph>> SplitStep(std::unique_ptr<Graph> graph,
                                                 absl::Span<const DeviceAttributes> devices,
                                                 const SplitOptions& options, int64_t& next_name) {
  Graph functions;
  CopyFunctions(*graph, functions);
  if (options.optimize) {
    OptimizeOptions portable;
    portable.fuse = false;
    ASSIGN_OR_RETURN(graph, OptimizeGraph(std::move(graph), portable));
  }
  PartitionOptions cut;
  cut.by = PartitionOptions::By::kTask;
  cut.counter = &next_name;
  cut.bfloat16 = options.bfloat16;
  ASSIGN_OR_RETURN(std::vector<GraphPart> cut_parts, PartitionGraph(*graph, devices, cut));
  std::vector<TaskGraph> parts;
  for (GraphPart& part : cut_parts) {
    CopyFunctions(functions, *part.graph);
    parts.push_back({std::move(part.task), std::move(part.graph)});
  }
  return parts;
}

void ReadClientEnds(const Graph& graph, const DeviceAttributes& client, ClusterPlan& plan) {
  for (const auto& node : graph.nodes()) {
    if (!node->Attr<bool>("client_terminated").value_or(false)) continue;
    const std::string tensor = node->Attr<std::string>("tensor_name").value_or("");
    std::string key = ClientKey(client, tensor);
    if (node->op() == "_Recv") {
      plan.feeds[tensor] = {node->name(), std::move(key), node->output_types()[0]};
    } else {
      plan.fetch_keys[tensor] = std::move(key);
    }
  }
}

ClusterPlan::~ClusterPlan() {
  if (!retired_.load(std::memory_order_relaxed)) return;
  for (const PlanPart& part : parts) {
    if (part.graph.empty()) continue;
    part.worker->DeregisterGraph({}, session, true, part.graph,
                                 [worker = part.worker](absl::StatusOr<Empty>) {});
  }
}

}  // namespace muster
