#include "muster/runtime/local_partitions.h"

#include <atomic>

#include "absl/algorithm/container.h"

#include "muster/base/log.h"
#include "muster/graph/place/memory_copies.h"
#include "muster/graph/place/partition.h"
#include "muster/graph/place/place.h"
#include "muster/graph/rewrite/optimize.h"

namespace muster {
namespace {

bool AreOfOneType(const std::vector<Device*>& devices) {
  return absl::c_all_of(devices, [&](const Device* d) { return d->type() == devices[0]->type(); });
}

absl::Status Place(Graph& graph, const std::vector<Device*>& devices,
                   const LocalPartitions::Options& options) {
  std::vector<std::string> names;
  for (const Device* device : devices) names.push_back(device->name());
  PlaceOptions place_options;
  place_options.allow_soft_placement = options.allow_soft_placement;
  place_options.default_device = options.default_device;
  if (!AreOfOneType(devices)) {
    place_options.supports = [](const Node& node, absl::string_view type) {
      return KernelRegistry::Global().Preference(node, type);
    };
  }
  ASSIGN_OR_RETURN(const Placement placement, PlaceGraph(graph, names, place_options));
  for (const auto& node : graph.nodes()) {
    node->set_device(names[placement.devices[node->id()]]);
    if (options.log_device_placement) {
      LOG(INFO) << node->name() << ": (" << node->op() << "): " << node->device();
    }
  }
  return absl::OkStatus();
}

Device* DeviceNamed(const std::vector<Device*>& devices, absl::string_view name) {
  for (Device* device : devices) {
    if (device->name() == name) return device;
  }
  return devices[0];
}

bool IsOnOneDevice(const Graph& graph) {
  for (const auto& node : graph.nodes()) {
    if (node->device() != graph.nodes()[0]->device()) return false;
  }
  return true;
}

bool IsTransfer(absl::string_view op) {
  return op == "_Send" || op == "_HostSend" || op == "_Recv" || op == "_HostRecv";
}

using Cut = std::vector<std::pair<Device*, std::unique_ptr<Graph>>>;

absl::StatusOr<Cut> CutByDevice(std::unique_ptr<Graph> graph, const std::vector<Device*>& devices) {
  Cut cut;
  if (devices.size() == 1 || IsOnOneDevice(*graph)) {
    Device* device =
        graph->num_nodes() == 0 ? devices[0] : DeviceNamed(devices, graph->nodes()[0]->device());
    cut.emplace_back(device, std::move(graph));
    return cut;
  }
  std::vector<DeviceAttributes> attributes;
  for (const Device* device : devices) attributes.push_back(device->attributes());
  ASSIGN_OR_RETURN(std::vector<GraphPart> parts, PartitionGraph(*graph, attributes));
  for (GraphPart& part : parts)
    cut.emplace_back(DeviceNamed(devices, part.device), std::move(part.graph));
  return cut;
}

}  // namespace

absl::StatusOr<std::unique_ptr<LocalPartitions>> LocalPartitions::Create(
    std::unique_ptr<Graph> graph, std::vector<Device*> devices, Options options,
    const KernelSource& kernels) {
  RETURN_IF_ERROR(Place(*graph, devices, options));
  return CreatePlaced(std::move(graph), std::move(devices), options, kernels);
}

absl::StatusOr<std::unique_ptr<LocalPartitions>> LocalPartitions::CreatePlaced(
    std::unique_ptr<Graph> graph, std::vector<Device*> devices, Options options,
    const KernelSource& kernels) {
  auto result = std::make_unique<LocalPartitions>();
  if (options.optimize_graph) {
    ASSIGN_OR_RETURN(graph, OptimizeGraph(std::move(graph)));
  }
  ASSIGN_OR_RETURN(Cut cut, CutByDevice(std::move(graph), devices));
  for (auto& [device, part] : cut) {
    if (device->has_own_memory()) {
      RETURN_IF_ERROR(AddMemoryCopies(
          *part, options.awaits_streams,
          [&device = device](const Node& node) { return HostArgsOf(node, device->type()); }));
    }
    for (const auto& node : part->nodes()) {
      result->has_transfers_ |= IsTransfer(node->op());
    }
    Partition partition;
    partition.graph = std::move(part);
    partition.device = device;
    ASSIGN_OR_RETURN(
        partition.executor,
        Executor::Create(*partition.graph, *device, [&kernels, device = device](const Node& node) {
          return kernels(node, *device);
        }));
    result->partitions_.push_back(std::move(partition));
  }
  return result;
}

void LocalPartitions::Run(Step& step, Done done) {
  if (partitions_.size() == 1) {
    partitions_[0].executor->Run(step, std::move(done));
    return;
  }
  // The last partition to end reports. The first error has cancelled the step; errors that follow
  // from the cancellation may have been recorded before it.
  struct Joined {
    std::atomic<size_t> left;
    Mutex mutex;
    absl::Status status ABSL_GUARDED_BY(mutex);
    Done done;
  };
  auto joined = std::make_shared<Joined>();
  joined->left = partitions_.size();
  joined->done = std::move(done);
  const auto finish = [joined, &step](absl::Status status) {
    {
      MutexLock lock(joined->mutex);
      if (joined->status.ok()) joined->status = std::move(status);
    }
    if (joined->left.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    absl::Status result;
    {
      MutexLock lock(joined->mutex);
      result = joined->status;
    }
    if (!result.ok() && step.cancellation != nullptr && step.cancellation->cancelled()) {
      result = step.cancellation->reason();
    }
    std::move(joined->done)(result);
  };
  for (size_t i = 1; i < partitions_.size(); ++i) {
    step.scheduler->Schedule(
        [this, &step, i, finish] { partitions_[i].executor->Run(step, finish); });
  }
  partitions_[0].executor->Run(step, finish);
}

std::vector<std::shared_ptr<const Graph>> LocalPartitions::graphs() const {
  std::vector<std::shared_ptr<const Graph>> list;
  for (const Partition& partition : partitions_) list.push_back(partition.graph);
  return list;
}

std::vector<Device*> LocalPartitions::devices() const {
  std::vector<Device*> list;
  for (const Partition& partition : partitions_) list.push_back(partition.device);
  return list;
}

}  // namespace muster
