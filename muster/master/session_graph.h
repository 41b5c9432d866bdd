// The graph of a session and where its nodes run.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "muster/base/mutex.h"
#include "muster/graph/place/place.h"
#include "muster/graph/rewrite/lower.h"
#include "muster/master/cluster_plan.h"
#include "muster/task/partial_run.h"
#include "muster/transport/api/master_api.h"

namespace muster {

// Thread-safe.
class SessionGraph {
 public:
  struct Options {
    bool allow_soft_placement = false;
    bool log_device_placement = false;
    SplitOptions split;
    int64_t max_nodes = 0;
  };
  explicit SessionGraph(Options options) : options_(options) {}

  // Devices that nodes may be placed on, the client's first.
  void SetDevices(std::vector<DeviceAttributes> devices);
  std::vector<DeviceAttributes> devices() const;

  // Adds nodes, which run nowhere before Place. One extension at a time.
  absl::Status Extend(GraphEdit edit);
  // Places what is new; takes it back on error. Nodes with state stay where they are.
  absl::Status Place();
  // Takes back what has not been placed.
  void Revert();

  // Parts of device names that nodes ask for, each once.
  std::vector<std::string> RequestedDevices() const;
  absl::StatusOr<std::vector<GraphPart>> Plan(
      const StepNames& names, absl::FunctionRef<bool(absl::string_view task)> is_muster,
      ClusterPlan& plan);
  // The book of a partial run with these names, which are canonical.
  absl::StatusOr<PartialRun> NewPartialRun(const StepNames& names) const;

 private:
  // What is placed and run.
  const Graph& run_graph() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return lowered_ != nullptr ? *lowered_->graph : graph_;
  }
  void RevertLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status PlaceLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<std::string> DeviceNamesLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  PlaceOptions PlaceOptionsLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  mutable Mutex mutex_;
  Graph graph_ ABSL_GUARDED_BY(mutex_);  // as the client sent it
  int num_placed_ ABSL_GUARDED_BY(mutex_) = 0;
  // The same with calls inlined and functional control flow lowered; null where there are no
  // functions.
  std::shared_ptr<const LoweredGraph> lowered_ ABSL_GUARDED_BY(mutex_);
  MovedOutputs moved_ ABSL_GUARDED_BY(mutex_);
  std::vector<DeviceAttributes> devices_ ABSL_GUARDED_BY(mutex_);
  // By id of the nodes that are run, as far as they have been placed.
  std::vector<std::string> device_of_ ABSL_GUARDED_BY(mutex_);
  // Before the extension that has not been placed yet.
  GraphVersions old_versions_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> old_functions_ ABSL_GUARDED_BY(mutex_);
  // Steps are cut one after the other, since the names of new nodes are counted over all of them.
  Mutex split_mutex_;
  int64_t next_name_ ABSL_GUARDED_BY(split_mutex_) = 0;
};

}  // namespace muster
