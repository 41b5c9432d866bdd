#include "muster/transport/watch/watched_peers.h"

#include <tuple>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/strip.h"

#include "muster/base/mutex.h"
#include "muster/transport/watch/task_watch.h"
#include "muster/transport/watch/watched_calls.h"

namespace muster {
namespace {

class WatchedPeers : public Peers {
 public:
  WatchedPeers(std::shared_ptr<Peers> inner, std::string self, Scheduler& scheduler,
               LivenessOptions options)
      : inner_(std::move(inner)),
        self_(std::move(self)),
        scheduler_(scheduler),
        options_(options) {}

  std::vector<TaskName> Tasks() const override { return inner_->Tasks(); }

  std::shared_ptr<WorkerApi> Worker(absl::string_view task) override {
    if (task == self_) return inner_->Worker(task);
    MutexLock lock(mutex_);
    const auto found = workers_.find(task);
    if (found != workers_.end()) return found->second;
    std::shared_ptr<WorkerApi> worker = inner_->Worker(task);
    if (worker == nullptr) return nullptr;
    std::shared_ptr<WorkerApi> watched = NewWatchedWorker(
        std::make_shared<TaskWatch>(std::string(task), std::move(worker), scheduler_, options_));
    workers_.emplace(task, watched);
    return watched;
  }

 private:
  const std::shared_ptr<Peers> inner_;
  const std::string self_;
  Scheduler& scheduler_;
  const LivenessOptions options_;
  Mutex mutex_;
  absl::flat_hash_map<std::string, std::shared_ptr<WorkerApi>> workers_ ABSL_GUARDED_BY(mutex_);
};

class WatchedTransport : public Transport {
 public:
  WatchedTransport(std::unique_ptr<Transport> inner, Scheduler& scheduler, LivenessOptions options)
      : inner_(std::move(inner)), scheduler_(scheduler), options_(options) {}

  std::shared_ptr<Peers> Connect(const ClusterSpec& cluster, const TaskName& self,
                                 std::shared_ptr<WorkerApi> self_worker) override {
    // A process without a task in the cluster watches all of them.
    std::string own = self_worker == nullptr ? "" : self.ToString();
    ClusterKey key{cluster.ToString(), self.ToString(), self_worker.get()};
    MutexLock lock(mutex_);
    std::shared_ptr<Peers> peers = clusters_[key].lock();
    if (peers != nullptr) return peers;
    absl::erase_if(clusters_, [](const auto& each) { return each.second.expired(); });
    peers = std::make_shared<WatchedPeers>(inner_->Connect(cluster, self, std::move(self_worker)),
                                           std::move(own), scheduler_, options_);
    clusters_[std::move(key)] = peers;
    return peers;
  }

  absl::StatusOr<std::shared_ptr<MasterApi>> ConnectMaster(absl::string_view target) override {
    ForgetUntrusted(target);
    ASSIGN_OR_RETURN(std::shared_ptr<MasterApi> master, inner_->ConnectMaster(target));
    return NewWatchedMaster(master, WatchOf(target, *master));
  }

 private:
  // Sessions that have the connection keep it; a new one does not wait for what they may wait for.
  void ForgetUntrusted(absl::string_view target) {
    MutexLock lock(mutex_);
    const auto found = masters_.find(target);
    if (found == masters_.end()) return;
    const std::shared_ptr<TaskWatch> watch = found->second.lock();
    if (watch != nullptr && watch->IsTrusted()) return;
    masters_.erase(found);
    inner_->ForgetMaster(target);
  }

  // One for all sessions at the target: it is asked once in a heartbeat, however many they are.
  std::shared_ptr<TaskWatch> WatchOf(absl::string_view target, MasterApi& master) {
    MutexLock lock(mutex_);
    std::shared_ptr<TaskWatch> watch = masters_[target].lock();
    if (watch != nullptr) return watch;
    absl::erase_if(masters_, [](const auto& each) { return each.second.expired(); });
    // A task has its worker at the same address. Asked over the connection of the calls, it tells
    // whether they can still be answered.
    std::shared_ptr<WorkerApi> worker = WorkerBeside(master);
    if (worker == nullptr) worker = ConnectWorkerAt(target);
    watch = std::make_shared<TaskWatch>(absl::StrCat("the master ", target), std::move(worker),
                                        scheduler_, options_);
    masters_[target] = watch;
    return watch;
  }

  std::shared_ptr<WorkerApi> ConnectWorkerAt(absl::string_view target) {
    const TaskName name{"master", 0, 0};
    const ClusterSpec cluster(
        {{name.job, {{name.task, std::string(absl::StripPrefix(target, "grpc://"))}}}});
    return NewWorkerBesideMaster([this, cluster, name] {
      return inner_->Connect(cluster, {}, nullptr)->Worker(name.ToString());
    });
  }

  const std::unique_ptr<Transport> inner_;
  Scheduler& scheduler_;
  const LivenessOptions options_;
  Mutex mutex_;
  absl::flat_hash_map<std::string, std::weak_ptr<TaskWatch>> masters_ ABSL_GUARDED_BY(mutex_);
  // Sessions that bring the same cluster share its connections, however many they are.
  using ClusterKey = std::tuple<std::string, std::string, const WorkerApi*>;
  absl::flat_hash_map<ClusterKey, std::weak_ptr<Peers>> clusters_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<Transport> NewWatchedTransport(std::unique_ptr<Transport> inner,
                                               Scheduler& scheduler, LivenessOptions options) {
  return std::make_unique<WatchedTransport>(std::move(inner), scheduler, options);
}

}  // namespace muster
