#include "muster/runtime/local_partitions.h"

#include <atomic>

#include "absl/strings/match.h"
#include "muster/base/log.h"
#include "muster/graph/optimize.h"

namespace muster {

absl::StatusOr<std::unique_ptr<LocalPartitions>> LocalPartitions::Create(std::unique_ptr<Graph> graph,
                                                                         std::vector<Device*> devices, Options options,
                                                                         const KernelSource& kernels) {
  auto result = std::make_unique<LocalPartitions>();
  if (options.optimize_graph) {
    ASSIGN_OR_RETURN(graph, OptimizeGraph(std::move(graph)));
  }
  std::vector<std::pair<Device*, std::unique_ptr<Graph>>> cut;
  cut.emplace_back(devices[0], std::move(graph));
  for (auto& [device, part] : cut) {
    for (const auto& node : part->nodes()) {
      result->has_transfers_ |= node->op() == "_Recv" || node->op() == "_HostRecv";
    }
    Partition partition;
    partition.graph = std::move(part);
    ASSIGN_OR_RETURN(partition.executor,
                     Executor::Create(*partition.graph, *device,
                                      [&kernels, device = device](const Node& node) { return kernels(node, *device); }));
    result->partitions_.push_back(std::move(partition));
  }
  return result;
}

void LocalPartitions::Run(Step& step, Done done) {
  if (partitions_.size() == 1) {
    partitions_[0].executor->Run(step, std::move(done));
    return;
  }
  // The last partition to end reports; the first error was the one that cancelled the others.
  struct Joined {
    std::atomic<size_t> left;
    Mutex mutex;
    absl::Status status ABSL_GUARDED_BY(mutex);
    Done done;
  };
  auto joined = std::make_shared<Joined>();
  joined->left = partitions_.size();
  joined->done = std::move(done);
  const auto finish = [joined](absl::Status status) {
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
    std::move(joined->done)(result);
  };
  for (size_t i = 1; i < partitions_.size(); ++i) {
    step.scheduler->Schedule([this, &step, i, finish] { partitions_[i].executor->Run(step, finish); });
  }
  partitions_[0].executor->Run(step, finish);
}

std::vector<std::shared_ptr<const Graph>> LocalPartitions::graphs() const {
  std::vector<std::shared_ptr<const Graph>> list;
  for (const Partition& partition : partitions_) list.push_back(partition.graph);
  return list;
}

}  // namespace muster
