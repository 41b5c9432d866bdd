#include "muster/master/session_graph.h"

#include "absl/container/flat_hash_set.h"
#include "absl/strings/strip.h"

#include "muster/base/log.h"
#include "muster/graph/place.h"

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
  const int placed = static_cast<int>(device_of_.size());
  std::vector<std::string> names;
  for (const DeviceAttributes& device : devices_) names.push_back(device.name);
  PlaceOptions place;
  place.allow_soft_placement = options_.allow_soft_placement;
  place.explain = true;
  place.local_task = std::string(TaskOfDevice(names.front()));
  absl::flat_hash_map<std::string, int> number_of;
  for (size_t i = 0; i < names.size(); ++i) number_of[names[i]] = static_cast<int>(i);
  for (int i = 0; i < placed; ++i) {
    if (graph_.nodes()[i]->def().is_stateful) place.fixed[i] = number_of.at(device_of_[i]);
  }
  ASSIGN_OR_RETURN(const Placement placement, PlaceGraph(graph_, names, place));
  for (int i = 0; i < graph_.num_nodes(); ++i) {
    const Node& node = *graph_.nodes()[i];
    const bool is_new = i >= placed;
    if (!is_new && node.def().is_stateful) continue;
    const std::string& device = names[placement.devices[i]];
    const std::string intro = absl::StrCat(node.name(), " (", node.op(), ") is on ", device, ": ");
    std::string reason(absl::StripPrefix(placement.reasons[i], intro));
    if (is_new) {
      device_of_.push_back(device);
      reasons_.push_back(std::move(reason));
    } else {
      device_of_[i] = device;
      reasons_[i] = std::move(reason);
    }
    if (is_new && options_.log_device_placement) {
      LOG(INFO) << node.name() << ": (" << node.op() << "): " << device;
    }
  }
  return absl::OkStatus();
}

void SessionGraph::Revert() {
  MutexLock lock(mutex_);
  RevertLocked();
}

void SessionGraph::RevertLocked() {
  graph_.RemoveNewestNodes(static_cast<int>(device_of_.size()));
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

absl::StatusOr<std::vector<TaskGraph>> SessionGraph::Plan(const StepNames& names,
                                                          ClusterPlan& plan) {
  std::unique_ptr<Graph> step;
  std::vector<DeviceAttributes> devices;
  {
    MutexLock lock(mutex_);
    devices = devices_;
    ASSIGN_OR_RETURN(step, BuildStepGraph(graph_, device_of_, names, devices_.front()));
  }
  absl::StatusOr<std::vector<TaskGraph>> split = absl::UnknownError("");
  {
    MutexLock lock(split_mutex_);
    split = SplitStep(std::move(step), devices, options_.split, next_name_);
  }
  if (!split.ok()) return std::move(split).status();
  std::vector<TaskGraph>& parts = *split;
  const absl::string_view client_task = TaskOfDevice(devices.front().name);
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].task != client_task) continue;
    plan.client_part = static_cast<int>(i);
    ReadClientEnds(*parts[i].graph, devices.front(), plan);
  }
  return split;
}

absl::StatusOr<std::vector<std::vector<std::string>>> SessionGraph::FeedsBehind(
    const StepNames& names) const {
  MutexLock lock(mutex_);
  return FeedsBehindFetches(graph_, names);
}

absl::StatusOr<std::vector<PlacementReport>> SessionGraph::Explain(absl::string_view node) const {
  MutexLock lock(mutex_);
  std::vector<PlacementReport> reports;
  for (size_t i = 0; i < device_of_.size(); ++i) {
    const Node& other = *graph_.nodes()[i];
    if (!node.empty() && other.name() != node) continue;
    reports.push_back({other.name(), other.op(), other.device(), device_of_[i], reasons_[i]});
  }
  if (!node.empty() && reports.empty())
    return NotFound("The session's graph has no node '", node, "'");
  return reports;
}

}  // namespace muster
