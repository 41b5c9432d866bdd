#include "muster/train/loop/coordinator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_join.h"

#include "muster/train/loop/interruption.h"
#include "muster/train/loop/notice.h"

namespace muster {
namespace {

// How often threads are polled that cannot signal their end.
constexpr absl::Duration kFirstPoll = absl::Milliseconds(1);
constexpr absl::Duration kLongestPoll = absl::Milliseconds(20);

bool AnyAlive(const std::vector<std::shared_ptr<Joinable>>& threads) {
  return std::any_of(threads.begin(), threads.end(), [](const auto& t) { return t->alive(); });
}

Coordinator::Options WithDefaults(Coordinator::Options options) {
  if (!options.is_clean)
    options.is_clean = [](const absl::Status& status) { return absl::IsOutOfRange(status); };
  if (!options.describe)
    options.describe = [](const absl::Status& status) { return status.ToString(); };
  if (options.timer == nullptr) options.timer = &Timer::Real();
  return options;
}

}  // namespace

// Functions of the options and threads may wait for the interpreter: none is called with the lock
// held.

Coordinator::Coordinator(Options options)
    : options_(WithDefaults(std::move(options))), timer_(*options_.timer) {}

absl::Status Coordinator::RequestStop(absl::Status why) {
  if (!why.ok() && options_.is_clean(why)) why = absl::OkStatus();
  {
    MutexLock lock(shared_->mutex);
    if (shared_->joined && !why.ok()) return why;
    if (shared_->stop) return absl::OkStatus();
  }
  // Said before others see the stop, as TensorFlow does; of two at once both are mentioned. What an
  // interruption ends has no news.
  if (!why.ok() && !IsInterruption(why))
    NoticeInfo("Error reported to Coordinator: ", options_.describe(why));
  MutexLock lock(shared_->mutex);
  if (shared_->stop) return absl::OkStatus();
  shared_->why = std::move(why);
  shared_->stop = true;
  ++shared_->changes;
  shared_->changed.NotifyAll();
  return absl::OkStatus();
}

bool Coordinator::ShouldStop() const {
  MutexLock lock(shared_->mutex);
  return shared_->stop;
}

bool Coordinator::WaitForStop(absl::Duration timeout) {
  const absl::Duration until = timer_.Now() + timeout;
  MutexLock lock(shared_->mutex);
  while (!shared_->stop) {
    const absl::Duration left = until - timer_.Now();
    if (left <= absl::ZeroDuration()) return false;
    timer_.Wait(shared_->changed, shared_->mutex, left);
  }
  return true;
}

void Coordinator::ClearStop() {
  absl::Status dropped;  // outside the lock
  MutexLock lock(shared_->mutex);
  shared_->joined = false;
  shared_->stop = false;
  std::swap(dropped, shared_->why);
}

void Coordinator::Register(std::shared_ptr<Joinable> thread) {
  MutexLock lock(shared_->mutex);
  auto& registered = shared_->registered;
  if (std::find(registered.begin(), registered.end(), thread) == registered.end())
    registered.push_back(std::move(thread));
}

absl::Status Coordinator::Join(std::vector<std::shared_ptr<Joinable>> threads,
                               JoinOptions options) {
  {
    MutexLock lock(shared_->mutex);
    for (const auto& thread : shared_->registered) {
      if (std::find(threads.begin(), threads.end(), thread) == threads.end())
        threads.push_back(thread);
    }
  }
  bool all_tell = true;
  for (const auto& thread : threads) {
    all_tell &= thread->WhenEnded([shared = shared_] {
      MutexLock lock(shared->mutex);
      ++shared->changes;
      shared->changed.NotifyAll();
    });
  }
  RETURN_IF_ERROR(
      WaitForThreads(threads, all_tell, true, absl::InfiniteDuration(), options.interrupted));
  RETURN_IF_ERROR(
      WaitForThreads(threads, all_tell, false, timer_.Now() + options.grace, options.interrupted));

  std::vector<std::string> stragglers;
  for (const auto& thread : threads) {
    if (thread->alive()) stragglers.push_back(thread->name());
  }
  std::vector<std::shared_ptr<Joinable>> registered;
  absl::Status why;
  {
    MutexLock lock(shared_->mutex);
    shared_->joined = true;
    registered.swap(shared_->registered);
    why = shared_->why;
  }
  RETURN_IF_ERROR(why);
  if (stragglers.empty()) return absl::OkStatus();
  const std::string text = absl::StrCat("Coordinator stopped with threads still running: ",
                                        absl::StrJoin(stragglers, " "));
  if (!options.ignore_live_threads) return RuntimeError(text);
  NoticeInfo(text);
  return absl::OkStatus();
}

absl::Status Coordinator::WaitForThreads(const std::vector<std::shared_ptr<Joinable>>& threads,
                                         bool all_tell, bool or_stop, absl::Duration until,
                                         const Interrupted& interrupted) {
  absl::Duration poll = kFirstPoll;
  for (;;) {
    uint64_t seen;
    {
      MutexLock lock(shared_->mutex);
      if (or_stop && shared_->stop) return absl::OkStatus();
      seen = shared_->changes;
    }
    if (!AnyAlive(threads)) return absl::OkStatus();
    absl::Duration timeout = until - timer_.Now();
    if (timeout <= absl::ZeroDuration()) return absl::OkStatus();
    if (!all_tell) timeout = std::min(timeout, poll);
    if (interrupted) timeout = std::min(timeout, kInterruptInterval);
    {
      MutexLock lock(shared_->mutex);
      if (shared_->changes == seen) timer_.Wait(shared_->changed, shared_->mutex, timeout);
    }
    if (interrupted) RETURN_IF_ERROR(interrupted());
    poll = std::min(2 * poll, kLongestPoll);
  }
}

bool Coordinator::joined() const {
  MutexLock lock(shared_->mutex);
  return shared_->joined;
}

absl::Status Coordinator::requested() const {
  MutexLock lock(shared_->mutex);
  return shared_->why;
}

}  // namespace muster
