#include "muster/train/loop/timer.h"

#include <algorithm>

namespace muster {
namespace {

// Waits end early rather than overflow.
constexpr absl::Duration kLongestWait = absl::Hours(24);

class RealTimer : public Timer {
 public:
  Clock& clock() override { return Clock::Real(); }
  void Wait(CondVar& changed, Mutex& mutex, absl::Duration timeout)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) override {
    changed.WaitFor(mutex, std::clamp(timeout, absl::ZeroDuration(), kLongestWait));
  }
};

}  // namespace

Timer& Timer::Real() {
  static RealTimer timer;
  return timer;
}

absl::Status SleepFor(Timer& timer, absl::Duration duration, const Interrupted& interrupted) {
  Mutex mutex;
  CondVar never;
  const absl::Duration until = timer.Now() + duration;
  for (absl::Duration left = duration; left > absl::ZeroDuration(); left = until - timer.Now()) {
    {
      MutexLock lock(mutex);
      timer.Wait(never, mutex, interrupted ? std::min(left, kInterruptInterval) : left);
    }
    if (interrupted) RETURN_IF_ERROR(interrupted());
  }
  return absl::OkStatus();
}

}  // namespace muster
