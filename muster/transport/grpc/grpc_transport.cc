#include "muster/transport/grpc/grpc_transport.h"

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"

#include "muster/transport/fast/fast_server.h"
#include "muster/transport/fast/neighbour_channel.h"
#include "muster/transport/grpc/grpc_bytes.h"
#include "muster/transport/grpc/grpc_channel.h"
#include "muster/transport/messages/stubs.h"

namespace muster {
namespace {

// With TLS or a token there is no shortcut around the network.
std::shared_ptr<const Channel> ChannelTo(std::string name, std::string address,
                                         std::string introduction, const GrpcOptions& options) {
  auto channel = std::make_shared<const GrpcChannel>(name, std::move(address),
                                                     std::move(introduction), options);
  const bool may_have_links =
      options.links != Links::kNone && options.scheduler != nullptr && !options.security.enabled();
  if (!may_have_links) return channel;
  return std::make_shared<const fast::NeighbourChannel>(std::move(channel), std::move(name),
                                                        options.links, *options.scheduler,
                                                        NeighbourLimit(options.max_message_bytes));
}

// How callers say who they are: a task by its name, others by their role.
std::string IntroductionOf(const GrpcOptions& options, const TaskName& self) {
  Caller caller;
  caller.role = self.job.empty() ? options.role : Caller::Role::kTask;
  if (!self.job.empty()) caller.task = self.ToString();
  return caller.Introduction();
}

class GrpcPeers final : public Peers {
 public:
  GrpcPeers(GrpcOptions options, const ClusterSpec& cluster, const TaskName& self,
            std::shared_ptr<WorkerApi> self_worker)
      : options_(std::move(options)),
        introduction_(IntroductionOf(options_, self)),
        tasks_(cluster.tasks()) {
    for (const TaskName& task : tasks_) {
      addresses_.emplace(task.ToString(), cluster.jobs().at(task.job).at(task.task));
    }
    if (self_worker != nullptr) workers_.emplace(self.ToString(), std::move(self_worker));
  }

  std::vector<TaskName> Tasks() const override { return tasks_; }

  std::shared_ptr<WorkerApi> Worker(absl::string_view task) override {
    MutexLock lock(mutex_);
    const auto found = workers_.find(task);
    if (found != workers_.end()) return found->second;
    const auto address = addresses_.find(task);
    if (address == addresses_.end()) return nullptr;
    std::shared_ptr<WorkerApi> worker =
        NewWorkerStub(ChannelTo(std::string(task), address->second, introduction_, options_));
    workers_.emplace(task, worker);
    return worker;
  }

 private:
  const GrpcOptions options_;
  const std::string introduction_;
  const std::vector<TaskName> tasks_;
  absl::flat_hash_map<std::string, std::string> addresses_;
  Mutex mutex_;
  absl::flat_hash_map<std::string, std::shared_ptr<WorkerApi>> workers_ ABSL_GUARDED_BY(mutex_);
};

// The "host:port" of "grpc://host:port".
absl::StatusOr<std::string> TargetAddress(absl::string_view target) {
  absl::string_view address = target;
  const bool grpc = absl::ConsumePrefix(&address, "grpc://");
  const size_t colon = address.rfind(':');
  const absl::string_view host = address.substr(0, colon);
  int port = 0;
  const bool bracketed = absl::StartsWith(host, "[") && absl::EndsWith(host, "]");
  const bool good_host = !host.empty() && host.find_first_of("/ \t\n") == host.npos &&
                         (bracketed || host.find(':') == host.npos);
  if (!grpc || colon == address.npos || !good_host ||
      !absl::SimpleAtoi(address.substr(colon + 1), &port) || port < 1 || port > 65535) {
    return InvalidArgument("'", target,
                           "' is not the target of a session; a target looks like "
                           "grpc://host:port, for example grpc://localhost:2222, and is empty "
                           "for a session in this process");
  }
  return std::string(address);
}

class GrpcTransport final : public Transport {
 public:
  explicit GrpcTransport(GrpcOptions options) : options_(std::move(options)) {}

  std::shared_ptr<Peers> Connect(const ClusterSpec& cluster, const TaskName& self,
                                 std::shared_ptr<WorkerApi> self_worker) override {
    return std::make_shared<GrpcPeers>(options_, cluster, self, std::move(self_worker));
  }

  absl::StatusOr<std::shared_ptr<MasterApi>> ConnectMaster(absl::string_view target) override {
    ASSIGN_OR_RETURN(std::string address, TargetAddress(target));
    MutexLock lock(mutex_);
    std::shared_ptr<const Channel> channel = masters_[address].lock();
    if (channel == nullptr) {
      absl::erase_if(masters_, [](const auto& each) { return each.second.expired(); });
      channel = ChannelTo("master", address, IntroductionOf(options_, TaskName()), options_);
      masters_[address] = channel;
    } else {
      // As soon as a new connection would be there.
      channel->Reconnect();
    }
    return NewMasterStub(std::move(channel));
  }

  void ForgetMaster(absl::string_view target) override {
    const absl::StatusOr<std::string> address = TargetAddress(target);
    MutexLock lock(mutex_);
    if (address.ok()) masters_.erase(*address);
  }

 private:
  const GrpcOptions options_;
  Mutex mutex_;
  // All sessions at a target share one connection, which ends with the last of them.
  absl::flat_hash_map<std::string, std::weak_ptr<const Channel>> masters_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<Transport> NewGrpcTransport(GrpcOptions options) {
  return std::make_unique<GrpcTransport>(std::move(options));
}

}  // namespace muster
