#include "muster/task/task_session.h"

#include <algorithm>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"

#include "muster/graph/proto/function_proto.h"

namespace muster {
namespace {

// Nodes at the border of a partition are stateful to the graph only, and their names mean something
// else in another graph.
bool IsBorder(absl::string_view op) {
  static const auto* borders = new absl::flat_hash_set<absl::string_view>{
      "_Arg", "_Retval", "_Send", "_Recv", "_HostSend", "_HostRecv"};
  return borders->contains(op);
}

// The first version of the collective ops does not say that it communicates. Nodes at the border
// do, through the rendezvous.
bool IsCollective(const Node& node) {
  return (node.def().is_distributed_communication && !IsBorder(node.op())) ||
         absl::StartsWith(node.op(), "Collective");
}

}  // namespace

std::shared_ptr<FunctionRuntime> TaskSession::MakeFunctions(
    const Graph& graph, const LocalPartitions::Options& options) const {
  auto library = std::make_shared<Graph>();
  library->versions() = graph.versions();
  CopyFunctions(graph, *library);
  return std::make_shared<FunctionRuntime>(std::move(library), devices_->list(), *resources_,
                                           options, devices_);
}

absl::StatusOr<std::shared_ptr<TaskGraph>> TaskSession::MakeGraph(std::unique_ptr<Graph> graph,
                                                                  GraphOptions options) {
  auto made = std::make_shared<TaskGraph>();
  made->functions = std::move(options.functions);
  made->frame_ids = options.frame_ids;
  // Functions may be called from anywhere and may hold collectives.
  made->has_collectives = made->functions != nullptr ||
                          std::any_of(graph->nodes().begin(), graph->nodes().end(),
                                      [](const auto& node) { return IsCollective(*node); });
  const auto kernels = [this](const Node& node, Device& device) { return KernelFor(node, device); };
  options.partitions.awaits_streams = true;
  if (options.is_placed) {
    ASSIGN_OR_RETURN(made->partitions,
                     LocalPartitions::CreatePlaced(std::move(graph), devices_->list(),
                                                   options.partitions, kernels));
  } else {
    ASSIGN_OR_RETURN(made->partitions, LocalPartitions::Create(std::move(graph), devices_->list(),
                                                               options.partitions, kernels));
  }
  // Functions are placed on any device of the task.
  const std::vector<Device*> used =
      made->functions != nullptr ? devices_->list() : made->partitions->devices();
  for (Device* const device : used) {
    Stream* const stream = device->stream();
    if (stream != nullptr && !absl::c_linear_search(made->streams, stream))
      made->streams.push_back(stream);
  }
  return made;
}

absl::StatusOr<std::shared_ptr<Kernel>> TaskSession::KernelFor(const Node& node, Device& device) {
  const bool is_shared = node.def().is_stateful && !IsBorder(node.op());
  if (!is_shared) return MakeKernel(node, device, *resources_);
  const auto key = std::make_pair(device.name(), node.name());
  {
    MutexLock lock(mutex_);
    const auto found = kernels_.find(key);
    if (found != kernels_.end()) return found->second;
  }
  ASSIGN_OR_RETURN(std::shared_ptr<Kernel> kernel, MakeKernel(node, device, *resources_));
  MutexLock lock(mutex_);
  return kernels_.emplace(key, std::move(kernel)).first->second;
}

void TaskSession::Clear() {
  absl::flat_hash_map<std::pair<std::string, std::string>, std::shared_ptr<Kernel>> dropped;
  MutexLock lock(mutex_);
  dropped.swap(kernels_);
}

}  // namespace muster
