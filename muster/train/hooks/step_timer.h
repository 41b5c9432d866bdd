// Decides at which steps something is due: every N steps, or every N seconds.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/time/time.h"

#include "muster/base/clock.h"
#include "muster/base/status.h"

namespace muster {

// How often. Exactly one of them is set, unless it is said otherwise.
struct Interval {
  std::optional<int64_t> steps;
  std::optional<absl::Duration> time;
  static Interval Steps(int64_t n) { return {n, std::nullopt}; }
  static Interval Every(absl::Duration d) { return {std::nullopt, d}; }
};

// Never due twice for one step; due at once at first.
class StepTimer {
 public:
  struct Elapsed {
    absl::Duration time;
    int64_t steps;
  };

  // `clock` null: the machine's.
  explicit StepTimer(Interval every, const Clock* clock = nullptr)
      : every_(every), clock_(clock == nullptr ? Clock::Real() : *clock) {}

  void Reset() { last_step_.reset(); }
  bool Due(int64_t step) const;
  // `step` is the one at which it happened. Nothing for the first one.
  std::optional<Elapsed> Happened(int64_t step);
  std::optional<int64_t> last_step() const { return last_step_; }

 private:
  const Interval every_;
  const Clock& clock_;
  std::optional<int64_t> last_step_;
  absl::Time last_time_;
};

}  // namespace muster
