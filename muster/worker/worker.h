// The worker of a task: keeps devices, sessions and steps, runs partitions and hands out tensors.
#pragma once

#include <memory>
#include <vector>

#include "muster/device/device_kinds.h"
#include "muster/transport/api/peers.h"
#include "muster/transport/api/step_sequences.h"
#include "muster/transport/api/worker_api.h"

namespace muster {

class DirectGroups;
class ResourceManager;

struct WorkerOptions {
  TaskName self;
  ClusterSpec cluster;
  // Both outlive the worker.
  Scheduler* scheduler = nullptr;  // runs kernels
  Transport* transport = nullptr;
  // Cancels and aborts, which must not wait for kernels to end. Outlives the worker; null: the
  // other.
  Scheduler* control = nullptr;
  DeviceOptions devices;
  // Replies of RecvTensor are kept until they are acknowledged, so that they can be sent again.
  bool cache_replies = false;
  // Before a cancelled step's rendezvous is aborted, its kernels have this long to end by
  // themselves.
  absl::Duration cancel_grace = absl::Seconds(1);
  // Sessions of a master that has been silent for this time are closed; see SessionTable.
  absl::Duration master_timeout = absl::Minutes(10);
  CallerLimits limits;  // of every caller
  // The leader of collective groups, where a session does not name one; empty: every task is its
  // own.
  std::string collective_group_leader;
  std::shared_ptr<DirectGroups> direct_groups;  // null: collectives have TensorFlow's way only
};

// Thread-safe. See wire-protocol §3.3 to §3.9 for what peers rely on.
class Worker : public WorkerApi {
 public:
  static absl::StatusOr<std::shared_ptr<Worker>> Create(WorkerOptions options);
  // The tasks of the cluster that the worker was made with; its own calls come straight back to it.
  virtual std::shared_ptr<Peers> peers() = 0;
  virtual const std::vector<Device*>& devices() const = 0;
  // What sessions without state of their own keep here.
  virtual const ResourceManager& resources() const = 0;
  // For the master of the same task.
  virtual std::shared_ptr<StepSequences> step_sequences() const = 0;
  // What would begin something new, a session, a graph or a step, fails with `reason`; what is
  // under way goes on.
  virtual void Refuse(absl::Status reason) = 0;
  // Steps under way end with `reason`; later calls fail with it. Waits for nothing.
  virtual void Stop(absl::Status reason) = 0;
  struct Counts {
    int64_t sessions = 0;
    int64_t graphs = 0;
    int64_t steps = 0;
    int64_t steps_run = 0;
    int64_t tensors_sent = 0;
    int64_t bytes_sent = 0;
    int64_t tensors_received = 0;
    int64_t bytes_received = 0;
    int64_t collective_bytes_sent = 0;
    int64_t collective_bytes_received = 0;
  };
  virtual Counts counts() const = 0;
  // Of `resources` those that are initialized.
  struct Variables {
    int64_t count = 0;
    int64_t bytes = 0;
  };
  virtual Variables variables() const = 0;
};

}  // namespace muster
