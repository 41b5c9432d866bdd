// Time as a dependency: production code asks a Clock, tests advance a virtual one.
#pragma once

#include "absl/time/time.h"

namespace muster {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual absl::Time Now() const = 0;
  // Monotonic nanoseconds, for intervals and traces.
  virtual int64_t NowNanos() const = 0;

  // The machine's own clock.
  static Clock& Real();
};

// A clock that moves only when told to. Thread-compatible.
class VirtualClock : public Clock {
 public:
  absl::Time Now() const override { return absl::UnixEpoch() + absl::Nanoseconds(nanos_); }
  int64_t NowNanos() const override { return nanos_; }
  void Advance(absl::Duration by) { nanos_ += absl::ToInt64Nanoseconds(by); }

 private:
  int64_t nanos_ = 0;
};

}  // namespace muster
