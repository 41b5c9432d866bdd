#include "muster/transport/watched_peers.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/strip.h"

#include "muster/base/log.h"
#include "muster/base/mutex.h"
#include "muster/transport/forwarding.h"
#include "muster/transport/peer.h"
#include "muster/transport/task_status.h"

namespace muster {
namespace {

// So long after the last call to it a silent task is still asked whether it is back.
constexpr absl::Duration kKeepAsking = absl::Minutes(5);
// So long a master that has gone may take to come back before the steps of its sessions fail.
constexpr absl::Duration kGoneAfter = absl::Seconds(3);

// Whether there is nobody at the address: a task that has not started yet, or one that is gone. One
// that accepts connections and says nothing is there, which gRPC tells by these texts only.
bool IsAbsence(const absl::Status& status) {
  const absl::string_view text = status.message();
  const bool is_mute = absl::StrContains(text, "before receiving SETTINGS") ||
                       (absl::StrContains(text, "andshake") && absl::StrContains(text, "imed out"));
  return absl::IsUnavailable(status) && !is_mute;
}

// Without what the transport adds about its call, which is none of the user's.
absl::string_view FirstLine(const absl::Status& status) {
  return status.message().substr(0, status.message().find('\n'));
}

absl::Status GivenUp(absl::Status status) {
  status.SetPayload(kGivenUpPayload, absl::Cord());
  return status;
}

// What a call does while there is nobody at the address of the task.
enum class InAbsence : uint8_t { kFails, kFailsLater, kWaits };

// The heart of one task, listened to while calls to it are open. Thread-safe.
class TaskWatch : public std::enable_shared_from_this<TaskWatch> {
 public:
  TaskWatch(std::string task, std::shared_ptr<WorkerApi> worker, Scheduler& scheduler,
            LivenessOptions options)
      : task_(std::move(task)),
        worker_(std::move(worker)),
        peer_(PeerOf(*worker_)),
        scheduler_(scheduler),
        options_(options),
        last_wanted_(scheduler.clock().NowNanos()) {}

  const std::string& task() const { return task_; }
  WorkerApi& worker() { return *worker_; }
  PeerApi* peer() const { return peer_; }
  Scheduler& scheduler() const { return scheduler_; }

  // A call is opened; cancelling `call` ends it. Unavailable where the task is known to be silent;
  // a patient call is then given a moment.
  absl::StatusOr<uint64_t> Open(std::shared_ptr<Cancellation> call, bool patient,
                                InAbsence in_absence) {
    MutexLock lock(mutex_);
    last_wanted_ = scheduler_.clock().NowNanos();
    if (ticking_ && IsSilentLocked() && !patient) return Silent(silence_);
    const uint64_t number = ++last_call_;
    calls_.emplace(number,
                   OpenCall{std::move(call), last_wanted_, renewals_, in_absence, std::nullopt});
    if (!ticking_) {
      ticking_ = true;
      // A task that was silent when it was last asked has less time to show that it is back.
      silence_ = IsSilentLocked()
                     ? std::max(absl::ZeroDuration(), options_.fail_after - options_.warn_after)
                     : absl::ZeroDuration();
      renew_after_ = options_.fail_after;
      unanswered_ = false;
      absent_since_.reset();
      TickLaterLocked();
    }
    return number;
  }

  bool IsSilent() {
    MutexLock lock(mutex_);
    return IsSilentLocked();
  }

  // Whether somebody new should use the connection: it answers, or was used a short while ago. One
  // that was idle for long may be dead without anybody knowing.
  bool IsTrusted() const {
    constexpr absl::Duration kIdle = absl::Minutes(1);
    MutexLock lock(mutex_);
    if (ticking_) return silence_ <= 2 * options_.heartbeat;
    return !IsSilentLocked() &&
           absl::Nanoseconds(scheduler_.clock().NowNanos() - last_wanted_) < kIdle;
  }

  // Calls from now on go over a new connection. Those under way are given a moment to end.
  void Renew() {
    if (peer_ == nullptr) return;
    peer_->Renew();
    MutexLock lock(mutex_);
    ++renewals_;
  }

  // The task has answered something that nobody here has asked.
  void Lives() { Heard(absl::OkStatus(), 0); }

  const LivenessOptions& options() const { return options_; }

  // The call has ended; `is_answered`: the task has done what was asked of it.
  void Closed(uint64_t number, bool is_answered) {
    OpenCall dropped;
    bool is_back = false;
    {
      MutexLock lock(mutex_);
      const auto found = calls_.find(number);
      if (found == calls_.end()) return;
      dropped = std::move(found->second);
      calls_.erase(found);
      if (is_answered && dropped.renewals == renewals_) is_back = HeardLocked();
    }
    if (is_back) LOG(INFO) << task_ << " answers again";
  }

 private:
  struct OpenCall {
    std::shared_ptr<Cancellation> cancellation;
    int64_t opened = 0;
    int renewals = 0;  // of the connection, before the call was made
    InAbsence in_absence = InAbsence::kFails;
    std::optional<uint64_t> incarnation;  // of the task, as first heard after the call was made
  };
  using Calls = std::vector<std::shared_ptr<Cancellation>>;

  bool IsSilentLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return silence_ >= options_.fail_after;
  }
  // Although no call waits for it.
  bool AsksAgainLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return IsSilentLocked() &&
           absl::Nanoseconds(scheduler_.clock().NowNanos() - last_wanted_) < kKeepAsking;
  }

  absl::Status Silent(absl::Duration silence) const {
    return absl::UnavailableError(absl::StrCat(
        task_, " has been silent for ",
        absl::FormatDuration(absl::Floor(silence, absl::Seconds(1))),
        ": no answer to heartbeats. The task has stopped, or the network to it is cut."));
  }
  absl::Status Gone(const absl::Status& status) const {
    return absl::UnavailableError(absl::StrCat(
        task_, " is gone, and its sessions with it. Re-create your session.\n", FirstLine(status)));
  }

  void TickLaterLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    last_tick_ = scheduler_.clock().NowNanos();
    scheduler_.ScheduleAfter(options_.heartbeat, [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->Tick();
    });
  }

  void Tick() {
    absl::Duration silence;
    bool warn = false;
    bool renew = false;
    Calls failed;
    {
      MutexLock lock(mutex_);
      if (calls_.empty() && !AsksAgainLocked()) {
        ticking_ = false;
        warned_ &= IsSilentLocked();
        return;
      }
      // A time in which this process itself stood still is not the task's silence.
      const absl::Duration since = absl::Nanoseconds(scheduler_.clock().NowNanos() - last_tick_);
      if (unanswered_) silence_ += std::min(since, 2 * options_.heartbeat);
      unanswered_ = true;
      silence = silence_;
      if (silence >= options_.warn_after && !warned_) warn = warned_ = true;
      failed = TakeSilencedLocked();
      // It may be the connection alone that is silent: the next question takes another one.
      renew = silence >= renew_after_;
      if (renew) renew_after_ = silence + options_.fail_after;
      TickLaterLocked();
    }
    if (warn) {
      LOG(WARNING) << task_ << " has not answered for " << absl::FormatDuration(silence)
                   << "; calls to it fail after " << absl::FormatDuration(options_.fail_after);
    }
    if (!failed.empty()) Fail(failed, Silent(std::max(silence, options_.fail_after)));
    if (renew) Renew();
    Ask();
  }

  // Several questions may be under way: each may get lost. What becomes of one over a connection
  // that was left meanwhile says nothing about the connection of the calls.
  void Ask() {
    CallOptions call;
    call.timeout = options_.fail_after;
    bool greet;
    int renewals;
    {
      MutexLock lock(mutex_);
      greet = peer_ != nullptr && !is_stock_;
      renewals = renewals_;
    }
    if (greet) {
      peer_->Hello(std::move(call), LocalPeer(),
                   [self = shared_from_this(), renewals](absl::StatusOr<PeerInfo> info) {
                     if (self->HasLeft(renewals)) return;
                     if (absl::IsUnimplemented(info.status())) {
                       {
                         MutexLock lock(self->mutex_);
                         self->is_stock_ = true;
                       }
                       return self->Lives();
                     }
                     self->Heard(info.status(), info.ok() ? info->incarnation : 0);
                   });
      return;
    }
    worker_->GetStatus(std::move(call), [self = shared_from_this(), renewals](
                                            absl::StatusOr<std::vector<DeviceAttributes>> devices) {
      if (self->HasLeft(renewals)) return;
      self->Heard(devices.status(),
                  devices.ok() && !devices->empty() ? devices->front().incarnation : 0);
    });
  }

  // The connection that was used after so many renewals.
  bool HasLeft(int renewals) const {
    MutexLock lock(mutex_);
    return renewals < renewals_;
  }

  // There is nobody at the address.
  void Missed(const absl::Status& status) {
    bool warn = false;
    Calls failed;
    {
      MutexLock lock(mutex_);
      const int64_t now = scheduler_.clock().NowNanos();
      if (!absent_since_) absent_since_ = now;
      const auto since = [now](int64_t then) { return absl::Nanoseconds(now - then); };
      bool is_awaited = false;
      for (const auto& [number, call] : calls_) {
        if (call.in_absence == InAbsence::kFails) continue;
        // Whoever waits for it to start knows that it may take long.
        unanswered_ = false;
        silence_ = absl::ZeroDuration();
        is_awaited |= call.in_absence == InAbsence::kWaits;
      }
      if (is_awaited && since(*absent_since_) >= options_.warn_after)
        warn = !std::exchange(warned_, true);
      if (since(*absent_since_) >= kGoneAfter) {
        failed = TakeLocked([&since](const OpenCall& call) {
          return call.in_absence == InAbsence::kFailsLater && since(call.opened) >= kGoneAfter;
        });
      }
    }
    if (warn) LOG(WARNING) << task_ << " is waited for: " << FirstLine(status);
    if (!failed.empty()) Fail(failed, Gone(status));
  }

  // A sign of life. Whether the task was missed before.
  bool HeardLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    absent_since_.reset();
    unanswered_ = false;
    silence_ = absl::ZeroDuration();
    renew_after_ = options_.fail_after;
    return std::exchange(warned_, false);
  }

  void Heard(const absl::Status& status, uint64_t incarnation) {
    if (IsAbsence(status)) return Missed(status);
    if (absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
        absl::IsCancelled(status)) {
      return;  // not a sign of life
    }
    bool is_back = false;
    Calls failed;
    {
      MutexLock lock(mutex_);
      is_back = HeardLocked();
      if (incarnation != 0) failed = TakeOlderLocked(incarnation);
    }
    if (is_back) LOG(INFO) << task_ << " answers again";
    if (failed.empty()) return;
    Fail(failed, PossiblyRestarted(absl::AbortedError(
                     absl::StrCat(task_,
                                  " has restarted during the call: what it held is lost. Re-create "
                                  "your session."))));
  }

  template <typename Condition>
  Calls TakeLocked(Condition condition) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    Calls taken;
    for (auto at = calls_.begin(); at != calls_.end();) {
      const auto call = at++;
      if (!condition(call->second)) continue;
      taken.push_back(std::move(call->second.cancellation));
      calls_.erase(call);
    }
    return taken;
  }

  // Calls that have waited long enough for a silent task, or over a connection that was silent and
  // has been left.
  Calls TakeSilencedLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const int64_t now = scheduler_.clock().NowNanos();
    const bool is_silent = IsSilentLocked();
    return TakeLocked([&](const OpenCall& call) {
      return (is_silent || call.renewals < renewals_) &&
             absl::Nanoseconds(now - call.opened) >= options_.warn_after;
    });
  }

  // Calls that were made to another life of the task.
  Calls TakeOlderLocked(uint64_t incarnation) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return TakeLocked([incarnation](OpenCall& call) {
      if (!call.incarnation) call.incarnation = incarnation;
      return *call.incarnation != incarnation;
    });
  }

  static void Fail(const Calls& calls, const absl::Status& status) {
    for (const auto& call : calls) call->Cancel(status);
  }

  const std::string task_;
  const std::shared_ptr<WorkerApi> worker_;
  PeerApi* const peer_;
  Scheduler& scheduler_;
  const LivenessOptions options_;
  mutable Mutex mutex_;
  std::map<uint64_t, OpenCall> calls_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_call_ ABSL_GUARDED_BY(mutex_) = 0;
  bool ticking_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t last_tick_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t last_wanted_ ABSL_GUARDED_BY(mutex_);                  // when a call was last made
  bool unanswered_ ABSL_GUARDED_BY(mutex_) = false;              // asked, and nothing heard since
  std::optional<int64_t> absent_since_ ABSL_GUARDED_BY(mutex_);  // nobody at the address
  absl::Duration silence_ ABSL_GUARDED_BY(mutex_);
  absl::Duration renew_after_ ABSL_GUARDED_BY(mutex_);  // so much silence
  int renewals_ ABSL_GUARDED_BY(mutex_) = 0;            // of the connection
  bool warned_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_stock_ ABSL_GUARDED_BY(mutex_) = false;  // does not know Hello
};

// What a master answers may be about any task; what the watch says begins with the master.
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
  // Whoever waits for a worker says so, and who is missing.
  if (!kIsMaster && options.wait_for_ready) return call(to, std::move(options), std::move(done));
  // What a session has is lost with its master; a session that is not made yet loses nothing.
  constexpr bool kHasSession =
      !std::is_same_v<Reply, CreateSessionReply> && !std::is_same_v<Reply, ListDevicesReply>;
  const InAbsence in_absence = !options.wait_for_ready ? InAbsence::kFails
                               : kHasSession           ? InAbsence::kFailsLater
                                                       : InAbsence::kWaits;
  auto both = std::make_shared<Cancellation>();
  const std::shared_ptr<Cancellation> caller = std::move(options.cancellation);
  Cancellation::Token token = 0;
  if (caller != nullptr) {
    token = caller->NewToken();
    // The caller's cancellation outlives the callback that it holds.
    if (!caller->Register(token, [both, from = caller.get()] { both->Cancel(from->reason()); })) {
      return std::move(done)(caller->reason());
    }
  }
  options.cancellation = both;
  const absl::StatusOr<uint64_t> number = watch->Open(std::move(both), kPatient, in_absence);
  if (!number.ok()) {
    if (caller != nullptr && !caller->cancelled()) caller->Deregister(token);
    return std::move(done)(kIsMaster ? GivenUp(number.status()) : number.status());
  }
  call(to, std::move(options),
       [watch, number = *number, caller, token,
        done = std::move(done)](absl::StatusOr<Reply> reply) mutable {
         watch->Closed(number, reply.ok());
         // Once it is cancelled the callback has run or is running, perhaps below us.
         if (caller != nullptr && !caller->cancelled()) caller->Deregister(token);
         if (absl::IsUnavailable(reply.status()))
           reply = kIsMaster ? AboutMaster(reply.status(), watch->task())
                             : AboutWorker(reply.status(), watch->task());
         std::move(done)(std::move(reply));
       });
}

class WatchedWorker : public ForwardingWorker<WatchedWorker>, public PeerApi, public StatusApi {
 public:
  explicit WatchedWorker(std::shared_ptr<TaskWatch> watch) : watch_(std::move(watch)) {}

  void GetStatus(CallOptions options, CallDone<std::vector<DeviceAttributes>> done) override {
    AskForStatus(watch_, std::move(options), std::move(done));
  }

  // What a silent task should drop, it should hear when it is back.
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
  // Whoever waits for a task is not told that it is silent. But the connection may be what is
  // silent, so that now and then the question is put over another one.
  static void AskForStatus(const std::shared_ptr<TaskWatch>& watch, CallOptions options,
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
    auto attempt = std::make_shared<Cancellation>();
    const std::shared_ptr<Cancellation> caller = options.cancellation;
    Cancellation::Token token = 0;
    if (caller != nullptr) {
      token = caller->NewToken();
      if (!caller->Register(token,
                            [attempt, from = caller.get()] { attempt->Cancel(from->reason()); })) {
        return std::move(done)(caller->reason());
      }
    }
    const Scheduler::TimerId timer = watch->scheduler().ScheduleAfter(
        fail_after, [attempt] { attempt->Cancel(absl::DeadlineExceededError("no answer yet")); });
    CallOptions now = options;
    now.cancellation = attempt;
    watch->worker().GetStatus(std::move(now),
                              [watch, timer, caller, token, options, done = std::move(done)](
                                  absl::StatusOr<std::vector<DeviceAttributes>> devices) mutable {
                                const bool in_time = watch->scheduler().CancelTimer(timer);
                                const bool is_wanted = caller == nullptr || !caller->cancelled();
                                if (caller != nullptr && is_wanted) caller->Deregister(token);
                                if (devices.ok()) watch->Lives();
                                if (devices.ok() || in_time || !is_wanted)
                                  return std::move(done)(std::move(devices));
                                watch->Renew();
                                options.timeout -= watch->options().fail_after;
                                AskForStatus(watch, std::move(options), std::move(done));
                              });
  }

  const std::shared_ptr<TaskWatch> watch_;
};

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
    auto watched = std::make_shared<WatchedWorker>(
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
  absl::flat_hash_map<std::string, std::shared_ptr<WatchedWorker>> workers_ ABSL_GUARDED_BY(mutex_);
};

// The worker beside a master, connected when its silence is first worth a question.
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
    return std::make_shared<WatchedMaster>(master, WatchOf(target, *master));
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
    return std::make_shared<WorkerBesideMaster>([this, cluster, name] {
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
