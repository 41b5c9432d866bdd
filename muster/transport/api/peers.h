// How a task reaches the others. The only way out of a task, so that a simulation can stand in for
// the network.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "muster/transport/api/master_api.h"
#include "muster/transport/api/worker_api.h"

namespace muster {

// The tasks of one cluster, seen from one of them. Thread-safe.
class Peers {
 public:
  virtual ~Peers() = default;
  // All tasks, this one too, sorted by job and number.
  virtual std::vector<TaskName> Tasks() const = 0;
  // The worker of a task ("/job:ps/replica:0/task:0"); null when the cluster has no such task. A
  // connection is made with the first call. The result lives as long as calls do: hold it while one
  // is under way.
  virtual std::shared_ptr<WorkerApi> Worker(absl::string_view task) = 0;
};

// Thread-safe.
class Transport {
 public:
  virtual ~Transport() = default;
  // `self` is the task's own worker, which is called directly; null for a cluster in which this
  // process has no task.
  virtual std::shared_ptr<Peers> Connect(const ClusterSpec& cluster, const TaskName& self,
                                         std::shared_ptr<WorkerApi> self_worker) = 0;
  // The master at "grpc://host:port". InvalidArgument, saying what a target looks like, for other
  // texts.
  virtual absl::StatusOr<std::shared_ptr<MasterApi>> ConnectMaster(absl::string_view target) = 0;
  // The next connection to that master is a new one, not shared with earlier users.
  virtual void ForgetMaster(absl::string_view /*target*/) {}
};

}  // namespace muster
