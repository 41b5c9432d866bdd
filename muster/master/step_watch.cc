#include "muster/master/step_watch.h"

#include <algorithm>
#include <set>

namespace muster {

void StepWatch::LookLater() {
  options_.scheduler->ScheduleAfter(options_.liveness.heartbeat, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->Look();
  });
}

void StepWatch::Look() {
  // Before the steps are counted: one that begins meanwhile wakes us again.
  awake_ = false;
  UnderWay under_way = options_.under_way();
  std::set<std::string> needed;
  bool lasts = false;
  for (const auto& run : under_way.runs) {
    lasts |= run->MayLeaveTasksBehind();
    for (std::string& task : run->TakeTasksBehind()) needed.insert(std::move(task));
  }
  std::vector<SessionTask> to_ask;
  {
    MutexLock lock(mutex_);
    std::erase_if(asked_, [&needed](const auto& asked) {
      return !asked.second.waiting && !needed.contains(asked.first);
    });
    for (SessionTask& task : under_way.tasks) {
      if (!needed.contains(task.text) || task.devices.empty()) continue;
      Asked& asked = asked_[task.text];
      if (std::exchange(asked.waiting, true)) continue;
      if (asked.silence == absl::ZeroDuration())
        asked.since_nanos = options_.scheduler->clock().NowNanos();
      to_ask.push_back(std::move(task));
    }
  }
  if (lasts && !awake_.exchange(true)) LookLater();
  for (const SessionTask& task : to_ask) Ask(task);
}

void StepWatch::Ask(const SessionTask& task) {
  CallOptions call;
  call.timeout = options_.liveness.heartbeat;
  task.worker->GetStatus(
      std::move(call),
      [self = shared_from_this(), task](absl::StatusOr<std::vector<DeviceAttributes>> devices) {
        self->Answered(task, devices);
      });
}

void StepWatch::Answered(const SessionTask& task,
                         const absl::StatusOr<std::vector<DeviceAttributes>>& devices) {
  absl::Status lost;
  {
    MutexLock lock(mutex_);
    Asked& asked = asked_[task.text];
    asked.waiting = false;
    lost = LostLocked(task, asked, devices);
  }
  if (lost.ok()) return;
  for (const auto& run : options_.under_way().runs) run->LoseTask(task.text, lost);
}

absl::Status StepWatch::LostLocked(const SessionTask& task, Asked& asked,
                                   const absl::StatusOr<std::vector<DeviceAttributes>>& devices) {
  if (devices.ok()) {
    asked.refusals = 0;
    asked.silence = absl::ZeroDuration();
    const uint64_t known = task.devices.front().incarnation;
    const bool is_same = std::any_of(devices->begin(), devices->end(), [known](const auto& device) {
      return device.incarnation == known;
    });
    if (is_same) return absl::OkStatus();
    return PossiblyRestarted(absl::AbortedError(
        absl::StrCat(task.text,
                     " has restarted during the step, after it had done its part: what it held is "
                     "lost. Re-create your session.")));
  }
  if (absl::IsDeadlineExceeded(devices.status()) || absl::IsCancelled(devices.status())) {
    asked.refusals = 0;
    // Time during which this process itself was stopped does not count as the task's silence.
    const int64_t now = options_.scheduler->clock().NowNanos();
    const absl::Duration since = absl::Nanoseconds(now - std::exchange(asked.since_nanos, now));
    asked.silence += std::min(since, 2 * options_.liveness.heartbeat);
    if (asked.silence < options_.liveness.fail_after) return absl::OkStatus();
    return absl::UnavailableError(
        absl::StrCat(task.text, " has been silent for ",
                     absl::FormatDuration(absl::Floor(asked.silence, absl::Seconds(1))),
                     " since it has done its part of the step"));
  }
  asked.silence = absl::ZeroDuration();
  if (++asked.refusals < kRefusals) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(
      task.text, " is gone, after it had done its part of the step: what it held is lost.\n",
      devices.status().message()));
}

}  // namespace muster
