// What a worker keeps for one session of a master: identity, state, kernels and registered graphs.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"

#include "muster/base/mutex.h"
#include "muster/runtime/function_runtime.h"
#include "muster/runtime/local_partitions.h"
#include "muster/tensor/memory_guard.h"
#include "muster/transport/peers.h"
#include "muster/worker/variable_names.h"

namespace muster {

using DeviceList = std::vector<std::unique_ptr<Device>>;

// A device of this task as a session has it: under the name that it has there, with memory on its
// account, which may be null.
std::unique_ptr<Device> NewSessionDevice(Device& device, std::string name,
                                         const RefPtr<MemoryAccount>& account);

struct RegisteredGraph {
  std::shared_ptr<FunctionRuntime> functions;  // null: the graph came without any
  std::unique_ptr<LocalPartitions> partitions;
  FrameIds frame_ids = FrameIds::kSince23;
  bool has_collectives = false;
  std::string collective_group_leader;  // empty: the one the task was started with
};

// Thread-safe.
class WorkerSession {
 public:
  struct Options {
    TaskName self;
    std::shared_ptr<Peers> peers;
    std::shared_ptr<DeviceList> devices;      // of the process
    bool rename_devices = false;              // `self` is not what the process was started as
    std::shared_ptr<ResourceManager> shared;  // state of the process; null: the session's own
    std::string master_task;
    uint64_t master_incarnation = 0;
    int64_t max_graph_nodes = 0;
    int64_t max_memory_bytes = INT64_MAX;      // of what its steps allocate
    std::shared_ptr<VariableNames> variables;  // null: nobody wants to know
  };
  explicit WorkerSession(Options options);

  const std::string& task() const { return task_; }
  const std::shared_ptr<Peers>& peers() const { return options_.peers; }
  ResourceManager& resources() { return *resources_; }
  const std::string& master_task() const { return options_.master_task; }
  uint64_t master_incarnation() const { return options_.master_incarnation; }
  bool has_own_cluster() const { return options_.rename_devices; }
  // The same master, started anew since this session was made.
  bool IsLeftBehindBy(absl::string_view master_task, uint64_t master_incarnation) const {
    return options_.master_task == master_task && options_.master_incarnation != master_incarnation;
  }

  // The handle: 16 hex digits, from one up.
  absl::StatusOr<std::string> Register(RegisterGraphRequest request);
  absl::Status Deregister(const std::string& handle);
  // Aborted when there is none.
  absl::StatusOr<std::shared_ptr<RegisteredGraph>> Find(const std::string& handle);
  int64_t num_graphs() const;

 private:
  absl::Status CheckDevices(const Graph& graph) const;
  void FixIncarnations(Graph& graph) const;
  absl::StatusOr<std::shared_ptr<Kernel>> KernelFor(const Node& node, Device& device);

  const Options options_;
  const std::string task_;
  // Shared with iterators that outlive the session.
  const std::shared_ptr<DeviceList> own_devices_ = std::make_shared<DeviceList>();
  std::vector<Device*> devices_;
  const std::shared_ptr<ResourceManager> resources_;

  Mutex kernels_mutex_;
  // By device and node name.
  absl::flat_hash_map<std::pair<std::string, std::string>, std::shared_ptr<Kernel>> kernels_
      ABSL_GUARDED_BY(kernels_mutex_);
  mutable Mutex mutex_;
  uint64_t last_handle_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<std::string, std::shared_ptr<RegisteredGraph>> graphs_
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster
