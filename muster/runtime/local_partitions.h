// The partitions of a step on the devices of this process, each with its executor.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "muster/runtime/executor.h"

namespace muster {

// Thread-safe.
class LocalPartitions {
 public:
  struct Options {
    bool optimize_graph = true;
    bool allow_soft_placement = false;
    bool log_device_placement = false;
    // Results are looked at when the streams of the devices have ended (TaskStep).
    bool awaits_streams = false;
    std::string default_device;  // see PlaceOptions
  };
  using KernelSource = std::function<absl::StatusOr<std::shared_ptr<Kernel>>(const Node&, Device&)>;

  // Optimizes `graph`, places its nodes on `devices` (which outlive this), cuts it and sets up
  // kernels.
  static absl::StatusOr<std::unique_ptr<LocalPartitions>> Create(std::unique_ptr<Graph> graph,
                                                                 std::vector<Device*> devices,
                                                                 Options options,
                                                                 const KernelSource& kernels);
  // The same for a graph whose nodes have the names of some of `devices` already.
  static absl::StatusOr<std::unique_ptr<LocalPartitions>> CreatePlaced(std::unique_ptr<Graph> graph,
                                                                       std::vector<Device*> devices,
                                                                       Options options,
                                                                       const KernelSource& kernels);

  // Runs all partitions; see Executor::Run. The result is the first error that was not a
  // consequence of another.
  void Run(Step& step, Done done);

  // Values pass between partitions, or in and out while the step runs. The step then needs a
  // rendezvous, which must be aborted when the step is cancelled.
  bool has_transfers() const { return has_transfers_; }
  std::vector<std::shared_ptr<const Graph>> graphs() const;
  // Of each partition.
  std::vector<Device*> devices() const;
  // See Executor::is_brief; false where other threads take part anyway.
  bool is_brief() const { return partitions_.size() == 1 && partitions_[0].executor->is_brief(); }
  bool is_short() const { return partitions_.size() == 1 && partitions_[0].executor->is_short(); }

 private:
  struct Partition {
    std::shared_ptr<const Graph> graph;
    Device* device = nullptr;
    std::unique_ptr<Executor> executor;
  };
  std::vector<Partition> partitions_;
  bool has_transfers_ = false;
};

}  // namespace muster
