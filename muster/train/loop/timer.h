// How the loops of this layer let time pass. Tests make it pass at once.
#pragma once

#include <functional>

#include "muster/base/clock.h"
#include "muster/base/mutex.h"
#include "muster/base/status.h"

namespace muster {

// Thread-safe.
class Timer {
 public:
  virtual ~Timer() = default;
  virtual Clock& clock() = 0;
  // Since some moment in the past; never goes back.
  absl::Duration Now() { return absl::Nanoseconds(clock().NowNanos()); }
  // Waits until `changed` is notified or `timeout` has passed, perhaps less. Requires: `mutex` is
  // held.
  virtual void Wait(CondVar& changed, Mutex& mutex, absl::Duration timeout)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) = 0;

  // The machine's own time.
  static Timer& Real();
};

// Asked now and then by waits that a signal may end: an error ends the wait, which returns it.
using Interrupted = std::function<absl::Status()>;

// Lets `duration` pass.
absl::Status SleepFor(Timer& timer, absl::Duration duration, const Interrupted& interrupted = {});

// The longest wait between two questions to an Interrupted.
inline constexpr absl::Duration kInterruptInterval = absl::Milliseconds(100);

}  // namespace muster
