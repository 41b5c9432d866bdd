#include "muster/master/session_graph.h"

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"

#include "muster/base/log.h"
#include "muster/device/device_name.h"
#include "muster/task/kernel_support.h"

namespace muster {

void SessionGraph::SetDevices(std::vector<DeviceAttributes> devices) {
  MutexLock lock(mutex_);
  devices_ = std::move(devices);
}

std::vector<DeviceAttributes> SessionGraph::devices() const {
  MutexLock lock(mutex_);
  return devices_;
}

absl::Status SessionGraph::Extend(GraphEdit edit) {
  MutexLock lock(mutex_);
  old_versions_ = graph_.versions();
  old_functions_.clear();
  for (const auto& [name, function] : graph_.functions()) old_functions_.push_back(name);
  if (!edit) return absl::OkStatus();
  absl::Status status = std::move(edit)(graph_);
  if (status.ok() && graph_.num_nodes() > options_.max_nodes) {
    status = absl::ResourceExhaustedError(absl::StrCat("The graph has ", graph_.num_nodes(),
                                                       " nodes; this master takes at most ",
                                                       options_.max_nodes));
  }
  if (!status.ok()) RevertLocked();
  return status;
}

absl::Status SessionGraph::Place() {
  MutexLock lock(mutex_);
  absl::Status status = PlaceLocked();
  if (!status.ok()) RevertLocked();
  return status;
}

absl::Status SessionGraph::PlaceLocked() {
  ASSIGN_OR_RETURN(std::shared_ptr<const LoweredGraph> lowered, LowerIfNeeded(graph_));
  const Graph& next = lowered != nullptr ? *lowered->graph : graph_;
  absl::flat_hash_map<std::string, size_t> before;
  for (size_t i = 0; i < device_of_.size(); ++i) before[run_graph().nodes()[i]->name()] = i;

  absl::flat_hash_map<std::string, int> number_of;
  for (size_t i = 0; i < devices_.size(); ++i) number_of[devices_[i].name] = static_cast<int>(i);
  PlaceOptions place = PlaceOptionsLocked();
  for (const auto& node : next.nodes()) {
    const auto old = before.find(node->name());
    if (old != before.end() && node->def().is_stateful)
      place.fixed[node->id()] = number_of.at(device_of_[old->second]);
  }
  ASSIGN_OR_RETURN(const Placement placement, PlaceGraph(next, DeviceNamesLocked(), place));

  std::vector<std::string> devices;
  for (const auto& node : next.nodes()) {
    devices.push_back(devices_[placement.devices[node->id()]].name);
    if (options_.log_device_placement && before.find(node->name()) == before.end()) {
      LOG(INFO) << node->name() << ": (" << node->op() << "): " << devices.back();
    }
  }
  num_placed_ = graph_.num_nodes();
  moved_ = lowered != nullptr ? lowered->Moved() : MovedOutputs();
  lowered_ = std::move(lowered);
  device_of_ = std::move(devices);
  return absl::OkStatus();
}

void SessionGraph::Revert() {
  MutexLock lock(mutex_);
  RevertLocked();
}

void SessionGraph::RevertLocked() {
  graph_.RemoveNewestNodes(num_placed_);
  graph_.versions() = old_versions_;
  const absl::flat_hash_set<std::string> old(old_functions_.begin(), old_functions_.end());
  absl::erase_if(graph_.functions(),
                 [&old](const auto& function) { return !old.contains(function.first); });
}

std::vector<std::string> SessionGraph::RequestedDevices() const {
  MutexLock lock(mutex_);
  absl::flat_hash_set<std::string> seen;
  std::vector<std::string> result;
  for (const auto& node : graph_.nodes()) {
    if (!node->device().empty() && seen.insert(node->device()).second)
      result.push_back(node->device());
  }
  return result;
}

absl::StatusOr<std::vector<GraphPart>> SessionGraph::Plan(
    const StepNames& names, absl::FunctionRef<bool(absl::string_view task)> is_muster,
    ClusterPlan& plan) {
  std::unique_ptr<Graph> step;
  std::vector<DeviceAttributes> devices;
  {
    MutexLock lock(mutex_);
    devices = devices_;
    ASSIGN_OR_RETURN(step,
                     BuildStepGraph(run_graph(), device_of_, moved_, names, devices_.front()));
    plan.fills_queues = names.fetches.empty() && !names.targets.empty();
    for (const std::string& target : names.targets) {
      const Node* const node = graph_.FindNode(target);
      plan.fills_queues &= node != nullptr && absl::StartsWith(node->op(), "QueueEnqueue");
    }
  }
  absl::StatusOr<std::vector<GraphPart>> split = absl::UnknownError("");
  SplitOptions options = options_.split;
  options.is_partial = names.is_partial;
  {
    MutexLock lock(split_mutex_);
    split = SplitStep(std::move(step), devices, options, is_muster, next_name_);
  }
  if (!split.ok()) return std::move(split).status();
  std::vector<GraphPart>& parts = *split;
  const absl::string_view client_task = TaskOf(devices.front().name);
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].task != client_task) continue;
    plan.client_part = static_cast<int>(i);
    ReadClientEnds(*parts[i].graph, devices.front(), plan);
  }
  return split;
}

absl::StatusOr<PartialRun> SessionGraph::NewPartialRun(const StepNames& names) const {
  MutexLock lock(mutex_);
  ASSIGN_OR_RETURN(const StepEnds ends, FindEnds(run_graph(), moved_, names));
  return PartialRun(names.feeds, names.fetches, FeedsBehind(ends.feeds, ends.fetches));
}

std::vector<std::string> SessionGraph::DeviceNamesLocked() const {
  std::vector<std::string> names;
  for (const DeviceAttributes& device : devices_) names.push_back(device.name);
  return names;
}

PlaceOptions SessionGraph::PlaceOptionsLocked() const {
  PlaceOptions place;
  place.allow_soft_placement = options_.allow_soft_placement;
  place.local_task = std::string(TaskOf(devices_.front().name));
  place.supports = KernelSupport(DeviceNamesLocked());
  return place;
}

}  // namespace muster
