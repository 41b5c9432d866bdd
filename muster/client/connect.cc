#include "muster/client/connect.h"

#include "absl/strings/match.h"

#include "muster/base/mutex.h"
#include "muster/base/settings.h"
#include "muster/transport/grpc/grpc_transport.h"
#include "muster/transport/grpc/security.h"
#include "muster/transport/inproc/local_masters.h"
#include "muster/transport/watch/watched_peers.h"

namespace muster {
namespace {

constexpr absl::Duration kInterruptInterval = absl::Milliseconds(100);

// One for the process: sessions at the same target share their connections. Never destroyed, since
// sessions may outlive everything else at the end of a process.
absl::StatusOr<Transport*> ClientTransport() {
  static const absl::StatusOr<Transport*> transport = []() -> absl::StatusOr<Transport*> {
    GrpcOptions options;
    options.scheduler = &DefaultScheduler();
    ASSIGN_OR_RETURN(const Settings settings, ReadSettings());
    ASSIGN_OR_RETURN(options.security, SecurityFrom(settings));
    options.links = settings.links;
    Scheduler& scheduler = *options.scheduler;
    return NewWatchedTransport(NewGrpcTransport(std::move(options)), scheduler,
                               LivenessFrom(settings))
        .release();
  }();
  return transport;
}

}  // namespace

absl::StatusOr<std::shared_ptr<MasterApi>> ConnectMaster(absl::string_view target,
                                                         const SessionConfig& config) {
  if (!absl::StartsWith(target, "grpc://")) {
    return NotFound("No session factory registered for the given session options: {target: \"",
                    target,
                    "\" config: } Registered factories are {DIRECT_SESSION, GRPC_SESSION}. A "
                    "target is \"\" or \"grpc://HOST:PORT\".");
  }
  if (!config.use_rpc_for_inprocess_master) {
    if (std::shared_ptr<MasterApi> own = FindLocalMaster(target)) return own;
  }
  ASSIGN_OR_RETURN(Transport* const transport, ClientTransport());
  return transport->ConnectMaster(target);
}

absl::StatusOr<SessionOptions> OptionsForTarget(std::string target, SessionConfig config) {
  SessionOptions options;
  options.devices = config.devices;
  options.operation_timeout = config.operation_timeout;
  options.optimize_graph = config.optimize_graph;
  options.log_device_placement = config.log_device_placement;
  options.allow_soft_placement = config.allow_soft_placement;
  options.executor_type = config.executor_type;
  options.target = std::move(target);
  options.config = std::move(config);
  if (!options.target.empty()) {
    ASSIGN_OR_RETURN(options.master, ConnectMaster(options.target, options.config));
  }
  return options;
}

absl::Status ResetContainers(absl::string_view target, std::vector<std::string> containers,
                             const SessionConfig& config,
                             const std::function<absl::Status()>& interrupted) {
  ASSIGN_OR_RETURN(const std::shared_ptr<MasterApi> master, ConnectMaster(target, config));
  struct Reply {
    Mutex mutex;
    CondVar arrived;
    absl::Status status ABSL_GUARDED_BY(mutex);
    bool done ABSL_GUARDED_BY(mutex) = false;
  };
  auto reply = std::make_shared<Reply>();
  CallOptions options;
  options.cancellation = std::make_shared<Cancellation>();
  if (config.operation_timeout > absl::ZeroDuration()) options.timeout = config.operation_timeout;
  master->Reset(options, std::move(containers), config.device_filters,
                [reply](const absl::StatusOr<Empty>& result) {
                  MutexLock lock(reply->mutex);
                  reply->status = result.status();
                  reply->done = true;
                  reply->arrived.NotifyAll();
                });
  while (true) {
    {
      MutexLock lock(reply->mutex);
      if (!reply->done) {
        if (interrupted) {
          reply->arrived.WaitFor(reply->mutex, kInterruptInterval);
        } else {
          reply->arrived.Wait(reply->mutex);
        }
      }
      if (reply->done) return reply->status;
    }
    const absl::Status interruption = interrupted ? interrupted() : absl::OkStatus();
    if (interruption.ok()) continue;
    options.cancellation->Cancel(absl::CancelledError("The client was interrupted"));
    return interruption;
  }
}

}  // namespace muster
