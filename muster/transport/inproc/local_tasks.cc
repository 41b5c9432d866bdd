#include "muster/transport/inproc/local_tasks.h"

#include "absl/strings/strip.h"

namespace muster {
namespace {

class MixedPeers : public Peers {
 public:
  MixedPeers(std::shared_ptr<LocalTasks> local, ClusterSpec cluster,
             std::shared_ptr<Peers> neighbours, std::shared_ptr<Peers> others)
      : local_(std::move(local)),
        cluster_(std::move(cluster)),
        neighbours_(std::move(neighbours)),
        others_(std::move(others)) {}

  std::vector<TaskName> Tasks() const override { return cluster_.tasks(); }

  std::shared_ptr<WorkerApi> Worker(absl::string_view task) override {
    const absl::StatusOr<TaskName> name = TaskName::Parse(task);
    if (!name.ok()) return nullptr;
    const absl::StatusOr<std::string> address = cluster_.Address(*name);
    if (address.ok() && local_->Has(*address)) return neighbours_->Worker(task);
    return others_ == nullptr ? nullptr : others_->Worker(task);
  }

 private:
  const std::shared_ptr<LocalTasks> local_;
  const ClusterSpec cluster_;
  const std::shared_ptr<Peers> neighbours_;
  const std::shared_ptr<Peers> others_;
};

class LocalTasksTransport : public Transport {
 public:
  LocalTasksTransport(std::shared_ptr<LocalTasks> local, std::unique_ptr<Transport> network)
      : local_(std::move(local)), network_(std::move(network)) {}

  std::shared_ptr<Peers> Connect(const ClusterSpec& cluster, const TaskName& self,
                                 std::shared_ptr<WorkerApi> self_worker) override {
    std::shared_ptr<Peers> others;
    if (network_ != nullptr) others = network_->Connect(cluster, self, self_worker);
    return std::make_shared<MixedPeers>(
        local_, cluster, local_->calls().Connect(cluster, self, std::move(self_worker)),
        std::move(others));
  }

  absl::StatusOr<std::shared_ptr<MasterApi>> ConnectMaster(absl::string_view target) override {
    const bool is_local = local_->Has(std::string(absl::StripPrefix(target, "grpc://")));
    return is_local || network_ == nullptr ? local_->calls().ConnectMaster(target)
                                           : network_->ConnectMaster(target);
  }

 private:
  const std::shared_ptr<LocalTasks> local_;
  const std::unique_ptr<Transport> network_;
};

}  // namespace

std::unique_ptr<Transport> NewLocalTasksTransport(std::shared_ptr<LocalTasks> local,
                                                  std::unique_ptr<Transport> network) {
  return std::make_unique<LocalTasksTransport>(std::move(local), std::move(network));
}

}  // namespace muster
