// Variables on parameter servers, everything else on the worker.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "muster/base/status.h"
#include "muster/graph/build/scope.h"

namespace muster {

// The task of the parameter server job that a variable's node goes to.
using PlacementStrategy = std::function<absl::StatusOr<int>(const Node&)>;

// 0, 1, ..., tasks - 1, 0, ... in the order in which it is asked.
PlacementStrategy RoundRobin(int tasks);

// The task with the least load so far, the first of them where several have it.
class GreedyLoads {
 public:
  explicit GreedyLoads(int tasks) : loads_(static_cast<size_t>(tasks)) {}
  int Place(double load);
  const std::vector<double>& loads() const { return loads_; }

 private:
  std::vector<double> loads_;
};

using LoadFunction = std::function<absl::StatusOr<double>(const Node&)>;
// The bytes of a variable's value. InvalidArgument where its shape is not known.
absl::StatusOr<double> ByteSizeLoad(const Node& node);
PlacementStrategy GreedyLoadBalancing(int tasks, LoadFunction load = ByteSizeLoad);

// The ops that replica_device_setter places on parameter servers.
const std::vector<std::string>& ParameterServerOps();

struct ReplicaDeviceOptions {
  std::string ps_device = "/job:ps";
  std::string worker_device = "/job:worker";
  // Off: a node that has a device keeps it as it is.
  bool merge_devices = true;
  std::vector<std::string> ps_ops = ParameterServerOps();
  PlacementStrategy strategy = {};  // RoundRobin where empty
};

// For Scope::WithDeviceFunction. Parts of a device that a node has already win.
DeviceFunction ReplicaDeviceSetter(int ps_tasks, ReplicaDeviceOptions options = {});

}  // namespace muster
