#include "muster/transport/inproc/in_process_transport.h"

#include <map>

namespace muster {
namespace {

class DirectCarrier : public Carrier {
 public:
  explicit DirectCarrier(Scheduler& scheduler) : scheduler_(scheduler) {}

  void Listen(const std::string& address, Endpoint endpoint) {
    std::vector<std::shared_ptr<RelayedCall>> waited;
    {
      MutexLock lock(mutex_);
      endpoints_.insert_or_assign(address, endpoint);
      const auto found = waiting_.find(address);
      if (found != waiting_.end()) {
        waited.swap(found->second);
        waiting_.erase(found);
      }
    }
    for (const auto& call : waited) {
      if (!call->answered()) call->Deliver(endpoint);
    }
  }

  void Close(const std::string& address) {
    Endpoint dropped;
    MutexLock lock(mutex_);
    const auto found = endpoints_.find(address);
    if (found == endpoints_.end()) return;
    dropped = std::move(found->second);
    endpoints_.erase(found);
  }

  // Endpoints hold peers, which hold this.
  void CloseAll() {
    std::map<std::string, Endpoint> endpoints;
    std::map<std::string, std::vector<std::shared_ptr<RelayedCall>>> waiting;
    MutexLock lock(mutex_);
    endpoints.swap(endpoints_);
    waiting.swap(waiting_);
  }

  void Carry(std::shared_ptr<RelayedCall> call) override {
    Endpoint endpoint;
    {
      MutexLock lock(mutex_);
      const auto found = endpoints_.find(call->to);
      if (found != endpoints_.end()) {
        endpoint = found->second;
      } else if (call->wait_for_ready) {
        waiting_[call->to].push_back(std::move(call));
        return;
      }
    }
    if (endpoint.worker == nullptr && endpoint.master == nullptr) {
      call->Fail(absl::UnavailableError(absl::StrCat(
          "failed to connect to all addresses; last error: nothing listens at ", call->to)));
    } else {
      call->Deliver(endpoint);
    }
  }

  void CarryReply(const std::shared_ptr<RelayedCall>&, Task answer) override {
    std::move(answer)();
  }

  void Ended(RelayedCall& call) override {
    std::shared_ptr<RelayedCall> dropped;
    MutexLock lock(mutex_);
    const auto found = waiting_.find(call.to);
    if (found == waiting_.end()) return;
    for (auto& waiting : found->second) {
      if (waiting.get() != &call) continue;
      dropped = std::move(waiting);
      waiting = std::move(found->second.back());
      found->second.pop_back();
      break;
    }
  }

  Scheduler& scheduler() override { return scheduler_; }

 private:
  Scheduler& scheduler_;
  Mutex mutex_;
  std::map<std::string, Endpoint> endpoints_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::vector<std::shared_ptr<RelayedCall>>> waiting_ ABSL_GUARDED_BY(mutex_);
};

class DirectTransport : public InProcessTransport {
 public:
  explicit DirectTransport(Scheduler& scheduler)
      : carrier_(std::make_shared<DirectCarrier>(scheduler)) {}
  ~DirectTransport() override { carrier_->CloseAll(); }
  void Listen(const std::string& address, Endpoint endpoint) override {
    carrier_->Listen(address, std::move(endpoint));
  }
  void Close(const std::string& address) override { carrier_->Close(address); }
  std::shared_ptr<Peers> Connect(const ClusterSpec& cluster, const TaskName& self,
                                 std::shared_ptr<WorkerApi> self_worker) override {
    return NewRelayedPeers(carrier_, std::make_shared<const ClusterSpec>(cluster), self,
                           std::move(self_worker));
  }
  absl::StatusOr<std::shared_ptr<MasterApi>> ConnectMaster(absl::string_view target) override {
    return NewRelayedMaster(carrier_, "client", target);
  }

 private:
  const std::shared_ptr<DirectCarrier> carrier_;
};

}  // namespace

std::unique_ptr<InProcessTransport> InProcessTransport::Create(Scheduler& scheduler) {
  return std::make_unique<DirectTransport>(scheduler);
}

}  // namespace muster
