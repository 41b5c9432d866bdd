#include "muster/transport/inproc/relay.h"

#include "absl/container/flat_hash_map.h"
#include "absl/strings/strip.h"

namespace muster {
namespace {

class RelayedWorker : public ForwardingWorker<RelayedWorker>, public StatusApi {
 public:
  explicit RelayedWorker(Relay relay) : relay_(std::move(relay)) {}
  bool IsMuster() override { return true; }
  template <typename Reply, typename Call>
  void Forward(CallOptions options, CallDone<Reply> done, Call call) {
    relay_.Start<WorkerApi>(std::move(options), std::move(done), std::move(call));
  }
  void Status(CallOptions options, StatusRequest request, CallDone<ClusterStatus> done) override {
    relay_.Start<StatusApi>(std::move(options), std::move(done),
                            [request = std::move(request)](StatusApi& to, CallOptions o,
                                                           CallDone<ClusterStatus> d) mutable {
                              to.Status(std::move(o), std::move(request), std::move(d));
                            });
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

std::shared_ptr<const Caller> ClientAt(std::string address) {
  auto caller = std::make_shared<Caller>();
  caller->name = address;
  caller->host = std::move(address);
  caller->role = Caller::Role::kClient;
  return caller;
}

std::shared_ptr<const Caller> CallerOf(const ClusterSpec& cluster, const TaskName& self) {
  std::string address = cluster.Address(self).value_or(self.ToString());
  if (self.job.empty()) return ClientAt(std::move(address));
  auto caller = std::make_shared<Caller>();
  caller->name = self.ToString();
  caller->host = std::move(address);
  caller->role = Caller::Role::kTask;
  caller->task = caller->name;
  return caller;
}

class RelayedPeers : public Peers {
 public:
  RelayedPeers(std::shared_ptr<Carrier> carrier, std::shared_ptr<const ClusterSpec> cluster,
               const TaskName& self, std::shared_ptr<WorkerApi> self_worker)
      : carrier_(std::move(carrier)),
        cluster_(std::move(cluster)),
        caller_(CallerOf(*cluster_, self)) {
    if (self_worker != nullptr) workers_[self.ToString()] = std::move(self_worker);
  }
  std::vector<TaskName> Tasks() const override { return cluster_->tasks(); }
  // Made when first asked for: a task knows few of the others.
  std::shared_ptr<WorkerApi> Worker(absl::string_view task) override {
    MutexLock lock(mutex_);
    const auto found = workers_.find(task);
    if (found != workers_.end()) return found->second;
    const absl::StatusOr<TaskName> name = TaskName::Parse(task);
    if (!name.ok() || name->ToString() != task) return nullptr;
    const absl::StatusOr<std::string> address = cluster_->Address(*name);
    if (!address.ok()) return nullptr;
    auto worker = std::make_shared<RelayedWorker>(Relay(carrier_, caller_, *address));
    workers_.emplace(task, worker);
    return worker;
  }

 private:
  const std::shared_ptr<Carrier> carrier_;
  const std::shared_ptr<const ClusterSpec> cluster_;
  const std::shared_ptr<const Caller> caller_;
  Mutex mutex_;
  absl::flat_hash_map<std::string, std::shared_ptr<WorkerApi>> workers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

std::shared_ptr<Peers> NewRelayedPeers(std::shared_ptr<Carrier> carrier,
                                       std::shared_ptr<const ClusterSpec> cluster,
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
      Relay(std::move(carrier), ClientAt(std::move(from)), std::string(address))));
}

}  // namespace muster
