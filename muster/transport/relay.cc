#include "muster/transport/relay.h"

#include "absl/container/flat_hash_map.h"
#include "absl/strings/strip.h"

namespace muster {
namespace {

class RelayedWorker : public ForwardingWorker<RelayedWorker> {
 public:
  explicit RelayedWorker(Relay relay) : relay_(std::move(relay)) {}
  template <typename Reply, typename Call>
  void Forward(CallOptions options, CallDone<Reply> done, Call call) {
    relay_.Start<WorkerApi>(std::move(options), std::move(done), std::move(call));
  }

 private:
  Relay relay_;
};

class RelayedMaster : public ForwardingMaster<RelayedMaster> {
 public:
  explicit RelayedMaster(Relay relay) : relay_(std::move(relay)) {}
  template <typename Reply, typename Call>
  void Forward(CallOptions options, CallDone<Reply> done, Call call) {
    relay_.Start<MasterApi>(std::move(options), std::move(done), std::move(call));
  }

 private:
  Relay relay_;
};

class RelayedPeers : public Peers {
 public:
  RelayedPeers(std::shared_ptr<Carrier> carrier, ClusterSpec cluster, const TaskName& self,
               std::shared_ptr<WorkerApi> self_worker)
      : cluster_(std::move(cluster)) {
    const std::string from = cluster_.Address(self).value_or(self.ToString());
    for (const TaskName& task : cluster_.tasks()) {
      workers_[task.ToString()] = task == self && self_worker != nullptr
                                      ? self_worker
                                      : std::make_shared<RelayedWorker>(Relay(
                                            carrier, from, cluster_.Address(task).value_or("")));
    }
  }
  std::vector<TaskName> Tasks() const override { return cluster_.tasks(); }
  std::shared_ptr<WorkerApi> Worker(absl::string_view task) override {
    const auto found = workers_.find(task);
    return found == workers_.end() ? nullptr : found->second;
  }

 private:
  const ClusterSpec cluster_;
  absl::flat_hash_map<std::string, std::shared_ptr<WorkerApi>> workers_;
};

}  // namespace

std::shared_ptr<Peers> NewRelayedPeers(std::shared_ptr<Carrier> carrier, ClusterSpec cluster,
                                       const TaskName& self,
                                       std::shared_ptr<WorkerApi> self_worker) {
  return std::make_shared<RelayedPeers>(std::move(carrier), std::move(cluster), self,
                                        std::move(self_worker));
}

absl::StatusOr<std::shared_ptr<MasterApi>> NewRelayedMaster(std::shared_ptr<Carrier> carrier,
                                                            std::string from,
                                                            absl::string_view target) {
  absl::string_view address = target;
  if (!absl::ConsumePrefix(&address, "grpc://") || address.empty())
    return InvalidArgument("A target looks like grpc://host:port, got '", target, "'");
  return std::shared_ptr<MasterApi>(std::make_shared<RelayedMaster>(
      Relay(std::move(carrier), std::move(from), std::string(address))));
}

}  // namespace muster
