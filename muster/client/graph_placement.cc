#include "muster/client/graph_placement.h"

#include "muster/graph/place/place.h"
#include "muster/task/kernel_support.h"

namespace muster {

absl::Status GraphPlacement::Apply(const Graph& graph, Graph& step_graph) {
  if (KernelSupport(devices_) == nullptr) return absl::OkStatus();
  MutexLock lock(mutex_);
  if (num_placed_ != graph.num_nodes()) RETURN_IF_ERROR(PlaceLocked(graph));
  for (const auto& node : step_graph.nodes()) {
    const auto found = device_of_.find(node->name());
    if (found != device_of_.end()) node->set_device(devices_[found->second]);
  }
  return absl::OkStatus();
}

absl::Status GraphPlacement::PlaceLocked(const Graph& graph) {
  PlaceOptions options;
  options.allow_soft_placement = allow_soft_placement_;
  options.supports = KernelSupport(devices_);
  for (const auto& node : graph.nodes()) {
    const auto before = device_of_.find(node->name());
    if (before != device_of_.end() && node->def().is_stateful)
      options.fixed[node->id()] = before->second;
  }
  ASSIGN_OR_RETURN(const Placement placement, PlaceGraph(graph, devices_, options));
  device_of_.clear();
  for (const auto& node : graph.nodes()) device_of_[node->name()] = placement.devices[node->id()];
  num_placed_ = graph.num_nodes();
  return absl::OkStatus();
}

}  // namespace muster
