// What a task keeps for one session: devices, resources, kernels, and the graphs that it runs.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"

#include "muster/base/caller.h"
#include "muster/base/mutex.h"
#include "muster/runtime/function_runtime.h"
#include "muster/runtime/local_partitions.h"
#include "muster/task/task_devices.h"

namespace muster {

// A graph that is ready to run on the devices of the task.
struct TaskGraph {
  std::unique_ptr<LocalPartitions> partitions;
  std::vector<Stream*> streams;                // of the devices that it runs on
  std::shared_ptr<FunctionRuntime> functions;  // null: no function library
  FrameIds frame_ids = FrameIds::kSince23;
  bool has_collectives = false;
};

// Thread-safe.
class TaskSession {
 public:
  // `scheduler` runs kernels and outlives the session, which belongs to `owner` (null: to code of
  // this process).
  TaskSession(std::shared_ptr<const TaskDevices> devices,
              std::shared_ptr<ResourceManager> resources, Scheduler& scheduler,
              std::shared_ptr<const Caller> owner = nullptr)
      : owner_(std::move(owner)),
        devices_(std::move(devices)),
        resources_(std::move(resources)),
        scheduler_(scheduler) {}

  const Caller* owner() const { return owner_.get(); }
  const TaskDevices& devices() const { return *devices_; }
  ResourceManager& resources() { return *resources_; }
  Scheduler& scheduler() { return scheduler_; }

  // Runs the functions of a graph's library, of which it keeps a copy.
  std::shared_ptr<FunctionRuntime> MakeFunctions(const Graph& graph,
                                                 const LocalPartitions::Options& options) const;

  struct GraphOptions {
    LocalPartitions::Options partitions;
    bool is_placed = false;                      // nodes have names of devices of the task already
    std::shared_ptr<FunctionRuntime> functions;  // null: none are called
    FrameIds frame_ids = FrameIds::kSince23;
  };
  absl::StatusOr<std::shared_ptr<TaskGraph>> MakeGraph(std::unique_ptr<Graph> graph,
                                                       GraphOptions options);

  // Drops kernels, so that what they hold of resources goes. Nothing runs any more.
  void Clear();

 private:
  // Stateful kernels live as long as the session and belong to the device and the node's name,
  // whatever step runs them.
  absl::StatusOr<std::shared_ptr<Kernel>> KernelFor(const Node& node, Device& device);

  const std::shared_ptr<const Caller> owner_;
  const std::shared_ptr<const TaskDevices> devices_;
  const std::shared_ptr<ResourceManager> resources_;
  Scheduler& scheduler_;
  Mutex mutex_;
  // By device and node name.
  absl::flat_hash_map<std::pair<std::string, std::string>, std::shared_ptr<Kernel>> kernels_
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster
