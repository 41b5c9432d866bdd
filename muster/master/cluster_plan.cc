#include "muster/master/cluster_plan.h"

#include <optional>
#include <set>

#include "absl/strings/match.h"

#include "muster/graph/place/pack_reads.h"
#include "muster/graph/proto/function_proto.h"
#include "muster/graph/rewrite/optimize.h"

namespace muster {

absl::StatusOr<std::vector<GraphPart>> SplitStep(
    std::unique_ptr<Graph> graph, absl::Span<const DeviceAttributes> devices,
    const SplitOptions& options, absl::FunctionRef<bool(absl::string_view task)> is_muster,
    int64_t& next_name) {
  Graph functions;
  CopyFunctions(*graph, functions);
  if (options.optimize) {
    OptimizeOptions portable;
    portable.fuse = false;
    ASSIGN_OR_RETURN(graph, OptimizeGraph(std::move(graph), portable));
    if (!options.bfloat16) RETURN_IF_ERROR(PackReads(*graph, is_muster, next_name));
  }
  PartitionOptions cut;
  cut.by = PartitionOptions::By::kTask;
  cut.counter = &next_name;
  cut.bfloat16 = options.bfloat16;
  cut.is_partial = options.is_partial;
  ASSIGN_OR_RETURN(std::vector<GraphPart> parts, PartitionGraph(*graph, devices, cut));
  for (GraphPart& part : parts) CopyFunctions(functions, *part.graph);
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

namespace {

uint64_t CombineHash(uint64_t a, uint64_t b) {
  return a ^ (b + 0x9e3779b97f4a7800 + (a << 10) + (a >> 4));
}

// The key that the later versions of the ops have as an input, where it is a constant.
std::optional<int64_t> InstanceInput(const Node& node) {
  int input = 0;
  for (const auto& argument : node.def().inputs) {
    if (argument.name == "instance_key") break;
    ++input;
  }
  if (input >= node.num_inputs() || node.input(input).node->op() != "Const") return std::nullopt;
  const absl::StatusOr<Tensor> value = node.input(input).node->Attr<Tensor>("value");
  if (!value.ok() || value->dtype() != DType::kInt32 || value->num_elements() != 1)
    return std::nullopt;
  return value->scalar<int32_t>();
}

}  // namespace

int64_t CollectiveGraphKey(absl::Span<const GraphPart> graphs) {
  bool has_collectives = false;
  std::set<int64_t> attributes;
  std::set<int64_t> inputs;
  for (const GraphPart& part : graphs) {
    for (const auto& node : part.graph->nodes()) {
      if (!absl::StartsWith(node->op(), "Collective")) continue;
      has_collectives = true;
      const absl::StatusOr<int64_t> attribute = node->Attr<int64_t>("instance_key");
      if (attribute.ok()) {
        attributes.insert(*attribute);
      } else if (const std::optional<int64_t> input = InstanceInput(*node)) {
        inputs.insert(*input);
      }
    }
  }
  if (!has_collectives) return 0;
  uint64_t hash = 0x8774aa605c729c72;
  // TensorFlow's masters only see the attributes.
  for (const int64_t key : attributes.empty() ? inputs : attributes)
    hash = CombineHash(static_cast<uint64_t>(key), hash);
  return static_cast<int64_t>(hash);
}

}  // namespace muster
