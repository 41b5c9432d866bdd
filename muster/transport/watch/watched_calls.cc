#include "muster/transport/watch/watched_calls.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"

#include "muster/base/cancel_callback.h"
#include "muster/transport/api/forwarding.h"
#include "muster/transport/api/task_status.h"

namespace muster {
namespace {

// A cancellation for one call, which the caller can cancel, and others too. A call may end inside
// of the cancellation of another one and must not wait there: TryRelease `on_cancel` when it ends.
struct EitherCancellation {
  // Null where `caller`, which may be null, is cancelled already.
  static std::shared_ptr<EitherCancellation> With(std::shared_ptr<Cancellation> caller) {
    auto either = std::make_shared<EitherCancellation>();
    const bool is_wanted = either->on_cancel.Start(
        std::move(caller),
        [weak = std::weak_ptr<EitherCancellation>(either)](const absl::Status& reason) {
          if (const auto held = weak.lock()) held->cancellation.Cancel(reason);
        });
    return is_wanted ? either : nullptr;
  }
  Cancellation cancellation;
  CancelCallback on_cancel;  // of the caller
};
std::shared_ptr<Cancellation> CancellationIn(const std::shared_ptr<EitherCancellation>& either) {
  return {either, &either->cancellation};
}

// Of an Unavailable that the watch of a master has decided on.
absl::Status GivenUp(absl::Status status) {
  status.SetPayload(kGivenUpPayload, absl::Cord());
  return status;
}

// What a master answers may be about any task; what its watch says begins with the master.
absl::Status AboutMaster(const absl::Status& status, const std::string& master) {
  return absl::StartsWith(status.message(), master) ? GivenUp(status) : status;
}

absl::Status AboutWorker(const absl::Status& status, const std::string& task) {
  if (absl::StrContains(status.message(), task)) return status;
  return Suffixed(status, absl::StrCat("\nwhile calling ", task));
}

// A call to `to`, of the task that `watch` watches. Either the caller or the watch ends it.
template <typename Api, typename Reply, typename Call>
void CallWatched(const std::shared_ptr<TaskWatch>& watch, Api& to, CallOptions options,
                 CallDone<Reply> done, Call call) {
  // A task that waits for a tensor may hear of its sender later than the master has: a link that
  // was cut comes back for each connection at its own time.
  constexpr bool kPatient = std::is_same_v<Reply, RecvTensorReply>;
  constexpr bool kIsMaster = std::is_same_v<Api, MasterApi>;
  // What waits for a worker reports by itself which one is missing.
  if (!kIsMaster && options.wait_for_ready) return call(to, std::move(options), std::move(done));
  // What a session has is lost with its master; a session that is not made yet loses nothing.
  constexpr bool kHasSession =
      !std::is_same_v<Reply, CreateSessionReply> && !std::is_same_v<Reply, ListDevicesReply>;
  const InAbsence in_absence = !options.wait_for_ready ? InAbsence::kFails
                               : kHasSession           ? InAbsence::kFailsLater
                                                       : InAbsence::kWaits;
  const auto either = EitherCancellation::With(options.cancellation);
  if (either == nullptr) return std::move(done)(options.cancellation->reason());
  options.cancellation = CancellationIn(either);
  const absl::StatusOr<uint64_t> number = watch->Open(options.cancellation, kPatient, in_absence);
  if (!number.ok()) {
    either->on_cancel.TryRelease();
    return std::move(done)(kIsMaster ? GivenUp(number.status()) : number.status());
  }
  call(to, std::move(options),
       [watch, number = *number, either,
        done = std::move(done)](absl::StatusOr<Reply> reply) mutable {
         watch->Closed(number, reply.ok());
         either->on_cancel.TryRelease();
         if (absl::IsUnavailable(reply.status()))
           reply = kIsMaster ? AboutMaster(reply.status(), watch->task())
                             : AboutWorker(reply.status(), watch->task());
         std::move(done)(std::move(reply));
       });
}

// --- Workers

// A caller that waits for a task is not told that it is silent. But the connection may be what is
// silent, so that now and then the question is put over another one.
void AskForStatus(const std::shared_ptr<TaskWatch>& watch, CallOptions options,
                  CallDone<std::vector<DeviceAttributes>> done) {
  const absl::Duration fail_after = watch->options().fail_after;
  if (!options.wait_for_ready || options.timeout <= fail_after) {
    return watch->worker().GetStatus(
        std::move(options), [watch, done = std::move(done)](
                                absl::StatusOr<std::vector<DeviceAttributes>> devices) mutable {
          if (devices.ok()) watch->Lives();
          std::move(done)(std::move(devices));
        });
  }
  // Not a deadline of the call, which would be seen on the wire.
  const auto attempt = EitherCancellation::With(options.cancellation);
  if (attempt == nullptr) return std::move(done)(options.cancellation->reason());
  const Scheduler::TimerId timer = watch->scheduler().ScheduleAfter(fail_after, [attempt] {
    attempt->cancellation.Cancel(absl::DeadlineExceededError("no answer yet"));
  });
  CallOptions now = options;
  now.cancellation = CancellationIn(attempt);
  watch->worker().GetStatus(
      std::move(now), [watch, timer, attempt, options, done = std::move(done)](
                          absl::StatusOr<std::vector<DeviceAttributes>> devices) mutable {
        const bool in_time = watch->scheduler().CancelTimer(timer);
        attempt->on_cancel.TryRelease();
        const bool is_wanted =
            options.cancellation == nullptr || !options.cancellation->cancelled();
        if (devices.ok()) watch->Lives();
        if (devices.ok() || in_time || !is_wanted) return std::move(done)(std::move(devices));
        watch->Renew();
        options.timeout -= watch->options().fail_after;
        AskForStatus(watch, std::move(options), std::move(done));
      });
}

class WatchedWorker : public ForwardingWorker<WatchedWorker>, public PeerApi, public StatusApi {
 public:
  explicit WatchedWorker(std::shared_ptr<TaskWatch> watch) : watch_(std::move(watch)) {}

  void GetStatus(CallOptions options, CallDone<std::vector<DeviceAttributes>> done) override {
    AskForStatus(watch_, std::move(options), std::move(done));
  }

  // Calls that make a task drop state are sent to a silent one when it is back.
  void DeleteWorkerSession(CallOptions options, std::string session,
                           CallDone<Empty> done) override {
    if (!watch_->IsSilent())
      return ForwardingWorker::DeleteWorkerSession(std::move(options), std::move(session),
                                                   std::move(done));
    options.timeout = std::min(options.timeout, watch_->options().fail_after);
    watch_->worker().DeleteWorkerSession(std::move(options), std::move(session), std::move(done));
  }
  void CleanupGraph(CallOptions options, int64_t step_id, CallDone<Empty> done) override {
    if (!watch_->IsSilent())
      return ForwardingWorker::CleanupGraph(std::move(options), step_id, std::move(done));
    options.timeout = std::min(options.timeout, watch_->options().fail_after);
    watch_->worker().CleanupGraph(std::move(options), step_id, std::move(done));
  }
  bool IsMuster() override { return watch_->worker().IsMuster(); }
  void Reconnect() override { watch_->worker().Reconnect(); }

  template <typename Reply, typename Call>
  void Forward(CallOptions options, CallDone<Reply> done, Call call) {
    CallWatched(watch_, watch_->worker(), std::move(options), std::move(done), std::move(call));
  }

  void Hello(CallOptions options, PeerInfo self, CallDone<PeerInfo> done) override {
    if (watch_->peer() == nullptr)
      return std::move(done)(Unimplemented("The task is not reached over a network"));
    watch_->peer()->Hello(std::move(options), std::move(self), std::move(done));
  }
  void Probe(absl::AnyInvocable<void(std::string) &&> done) override {
    if (watch_->peer() == nullptr) return std::move(done)("nothing to try but the call itself");
    watch_->peer()->Probe(std::move(done));
  }
  void Renew() override { watch_->Renew(); }
  void Status(CallOptions options, StatusRequest request, CallDone<ClusterStatus> done) override {
    StatusApi* const api = StatusOf(watch_->worker());
    if (api == nullptr) return std::move(done)(Unimplemented("The task cannot be asked"));
    api->Status(
        std::move(options), std::move(request),
        [watch = watch_, done = std::move(done)](absl::StatusOr<ClusterStatus> cluster) mutable {
          if (cluster.ok()) watch->Lives();
          std::move(done)(std::move(cluster));
        });
  }

 private:
  const std::shared_ptr<TaskWatch> watch_;
};

// --- Masters

class WorkerBesideMaster : public ForwardingWorker<WorkerBesideMaster>, public PeerApi {
 public:
  explicit WorkerBesideMaster(absl::AnyInvocable<std::shared_ptr<WorkerApi>()> connect)
      : connect_(std::move(connect)) {}

  template <typename Reply, typename Call>
  void Forward(CallOptions options, CallDone<Reply> done, Call call) {
    const std::shared_ptr<WorkerApi> worker = Connected();
    call(*worker, std::move(options),
         [worker, done = std::move(done)](absl::StatusOr<Reply> reply) mutable {
           std::move(done)(std::move(reply));
         });
  }
  void Hello(CallOptions options, PeerInfo self, CallDone<PeerInfo> done) override {
    const std::shared_ptr<WorkerApi> worker = Connected();
    PeerApi* const peer = PeerOf(*worker);
    if (peer == nullptr) return std::move(done)(Unimplemented("no greeting"));
    peer->Hello(std::move(options), std::move(self),
                [worker, done = std::move(done)](absl::StatusOr<PeerInfo> info) mutable {
                  std::move(done)(std::move(info));
                });
  }
  void Probe(absl::AnyInvocable<void(std::string) &&> done) override { std::move(done)(""); }
  void Renew() override {
    if (PeerApi* const peer = PeerOf(*Connected())) peer->Renew();
  }

 private:
  std::shared_ptr<WorkerApi> Connected() {
    MutexLock lock(mutex_);
    if (worker_ == nullptr) worker_ = connect_();
    return worker_;
  }

  Mutex mutex_;
  absl::AnyInvocable<std::shared_ptr<WorkerApi>()> connect_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<WorkerApi> worker_ ABSL_GUARDED_BY(mutex_);
};

class WatchedMaster : public ForwardingMaster<WatchedMaster> {
 public:
  WatchedMaster(std::shared_ptr<MasterApi> master, std::shared_ptr<TaskWatch> watch)
      : master_(std::move(master)), watch_(std::move(watch)) {}

  // Has a bound of its own, and should reach a master that is back.
  void CloseSession(CallOptions options, std::string session, CallDone<Empty> done) override {
    master_->CloseSession(std::move(options), std::move(session), std::move(done));
  }

  template <typename Reply, typename Call>
  void Forward(CallOptions options, CallDone<Reply> done, Call call) {
    CallWatched(watch_, *master_, std::move(options), std::move(done), std::move(call));
  }

 private:
  const std::shared_ptr<MasterApi> master_;
  const std::shared_ptr<TaskWatch> watch_;
};

}  // namespace

std::shared_ptr<WorkerApi> NewWatchedWorker(std::shared_ptr<TaskWatch> watch) {
  return std::make_shared<WatchedWorker>(std::move(watch));
}

std::shared_ptr<MasterApi> NewWatchedMaster(std::shared_ptr<MasterApi> master,
                                            std::shared_ptr<TaskWatch> watch) {
  return std::make_shared<WatchedMaster>(std::move(master), std::move(watch));
}

std::shared_ptr<WorkerApi> NewWorkerBesideMaster(
    absl::AnyInvocable<std::shared_ptr<WorkerApi>()> connect) {
  return std::make_shared<WorkerBesideMaster>(std::move(connect));
}

}  // namespace muster
