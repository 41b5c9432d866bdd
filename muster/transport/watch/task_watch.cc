#include "muster/transport/watch/task_watch.h"

#include <algorithm>

#include "absl/strings/match.h"

#include "muster/base/log.h"

namespace muster {
namespace {

// So long after the last call to it a silent task is still asked whether it is back.
constexpr absl::Duration kKeepAsking = absl::Minutes(5);
// So long a task that has gone may take to come back before calls that do not wait for it fail.
constexpr absl::Duration kGoneAfter = absl::Seconds(3);
// A connection that was not used for longer is not trusted.
constexpr absl::Duration kIdle = absl::Minutes(1);

// Whether nothing listens at the address: the task has not started yet, or is gone. One that
// accepts connections and says nothing is there, which gRPC tells by these texts only.
bool IsAbsence(const absl::Status& status) {
  const absl::string_view text = status.message();
  const bool is_mute = absl::StrContains(text, "before receiving SETTINGS") ||
                       (absl::StrContains(text, "andshake") && absl::StrContains(text, "imed out"));
  return absl::IsUnavailable(status) && !is_mute;
}

// Without the lines that the transport adds about its call, which do not help the user.
absl::string_view FirstLine(const absl::Status& status) {
  return status.message().substr(0, status.message().find('\n'));
}

}  // namespace

template <typename Condition>
TaskWatch::Calls TaskWatch::TakeLocked(Condition condition) {
  Calls taken;
  for (auto at = calls_.begin(); at != calls_.end();) {
    const auto call = at++;
    if (!condition(call->second)) continue;
    taken.push_back(std::move(call->second.cancellation));
    calls_.erase(call);
  }
  return taken;
}

absl::StatusOr<uint64_t> TaskWatch::Open(std::shared_ptr<Cancellation> call, bool patient,
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

void TaskWatch::Closed(uint64_t number, bool is_answered) {
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

bool TaskWatch::IsSilent() const {
  MutexLock lock(mutex_);
  return IsSilentLocked();
}

bool TaskWatch::IsTrusted() const {
  MutexLock lock(mutex_);
  if (ticking_) return silence_ <= 2 * options_.heartbeat;
  return !IsSilentLocked() &&
         absl::Nanoseconds(scheduler_.clock().NowNanos() - last_wanted_) < kIdle;
}

void TaskWatch::Renew() {
  if (peer_ == nullptr) return;
  peer_->Renew();
  MutexLock lock(mutex_);
  ++renewals_;
}

bool TaskWatch::AsksAgainLocked() const {
  return IsSilentLocked() &&
         absl::Nanoseconds(scheduler_.clock().NowNanos() - last_wanted_) < kKeepAsking;
}

absl::Status TaskWatch::Silent(absl::Duration silence) const {
  return absl::UnavailableError(absl::StrCat(
      task_, " has been silent for ", absl::FormatDuration(absl::Floor(silence, absl::Seconds(1))),
      ": no answer to heartbeats. The task has stopped, or the network to it is cut."));
}

absl::Status TaskWatch::Gone(const absl::Status& status) const {
  return absl::UnavailableError(absl::StrCat(
      task_, " is gone, and its sessions with it. Re-create your session.\n", FirstLine(status)));
}

void TaskWatch::TickLaterLocked() {
  last_tick_ = scheduler_.clock().NowNanos();
  scheduler_.ScheduleAfter(options_.heartbeat, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->Tick();
  });
}

void TaskWatch::Tick() {
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

void TaskWatch::Ask() {
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

bool TaskWatch::HasLeft(int renewals) const {
  MutexLock lock(mutex_);
  return renewals < renewals_;
}

void TaskWatch::Heard(const absl::Status& status, uint64_t incarnation) {
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

bool TaskWatch::HeardLocked() {
  absent_since_.reset();
  unanswered_ = false;
  silence_ = absl::ZeroDuration();
  renew_after_ = options_.fail_after;
  return std::exchange(warned_, false);
}

void TaskWatch::Missed(const absl::Status& status) {
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
      // A caller that waits for it to start knows that it may take long.
      unanswered_ = false;
      silence_ = absl::ZeroDuration();
      is_awaited |= call.in_absence == InAbsence::kWaits;
    }
    if (is_awaited && since(*absent_since_) >= options_.warn_after)
      warn = !std::exchange(warned_, true);
    if (since(*absent_since_) >= kGoneAfter) {
      failed = TakeLocked([&since](const OpenCall& call) {
        return call.in_absence != InAbsence::kWaits && since(call.opened) >= kGoneAfter;
      });
    }
  }
  if (warn) LOG(WARNING) << "Waiting for " << task_ << ": " << FirstLine(status);
  if (!failed.empty()) Fail(failed, Gone(status));
}

TaskWatch::Calls TaskWatch::TakeSilencedLocked() {
  const int64_t now = scheduler_.clock().NowNanos();
  const bool is_silent = IsSilentLocked();
  return TakeLocked([&](const OpenCall& call) {
    return (is_silent || call.renewals < renewals_) &&
           absl::Nanoseconds(now - call.opened) >= options_.warn_after;
  });
}

TaskWatch::Calls TaskWatch::TakeOlderLocked(uint64_t incarnation) {
  return TakeLocked([incarnation](OpenCall& call) {
    if (!call.incarnation) call.incarnation = incarnation;
    return *call.incarnation != incarnation;
  });
}

void TaskWatch::Fail(const Calls& calls, const absl::Status& status) {
  for (const auto& call : calls) call->Cancel(status);
}

}  // namespace muster
