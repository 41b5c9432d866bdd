// Time that passes only in waits, for tests on one thread.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include <gtest/gtest.h>

#include "muster/train/loop/timer.h"

namespace muster {

class VirtualTimer : public Timer {
 public:
  Clock& clock() override { return clock_; }
  // Called during a wait that passes that moment.
  void At(absl::Duration when, std::function<void()> event) {
    events_.emplace(when, std::move(event));
  }
  void Advance(absl::Duration by) { clock_.Advance(by); }
  absl::Duration longest_wait() const { return longest_wait_; }

  void Wait(CondVar&, Mutex& mutex,
            absl::Duration timeout) override ABSL_NO_THREAD_SAFETY_ANALYSIS {
    const absl::Duration until = Now() + timeout;
    if (timeout < absl::InfiniteDuration()) longest_wait_ = std::max(longest_wait_, timeout);
    if (!events_.empty() && events_.begin()->first <= until) {
      const auto event = events_.extract(events_.begin());
      clock_.Advance(std::max(event.key() - Now(), absl::ZeroDuration()));
      mutex.Unlock();
      event.mapped()();
      mutex.Lock();
      return;
    }
    // Nothing will ever happen: a test that waits without a timeout is wrong.
    ASSERT_LT(timeout, absl::InfiniteDuration());
    clock_.Advance(absl::Ceil(timeout, absl::Nanoseconds(1)));
  }

 private:
  VirtualClock clock_;
  std::multimap<absl::Duration, std::function<void()>> events_;
  absl::Duration longest_wait_ = absl::ZeroDuration();
};

}  // namespace muster
