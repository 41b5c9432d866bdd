// Whether what a thread waits for usually comes so soon that spinning is cheaper than sleeping: to
// be woken takes tens of microseconds, a round trip between two processes a few.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace muster {

// Between two looks of a thread that spins: leaves more of the core to its other hardware thread.
inline void PauseCpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// A credit between -8 and 8, earned by waits that were short. Kept with what is waited for (a link,
// a pool, a session), not with the thread. Thread-safe; what two threads note at the same time may
// count once.
class Pace {
 public:
  explicit Pace(int64_t longest_spin_nanos) : longest_spin_nanos_(longest_spin_nanos) {}

  int64_t longest_spin_nanos() const { return longest_spin_nanos_; }
  // Spinning is worth it.
  bool is_quick() const { return credit_.load(std::memory_order_relaxed) >= kEnough; }
  // A thread has spun: did it come in time? One time in three is worth it.
  void NoteSpin(bool came) { Add(came ? 2 : -1); }
  // A thread has slept for `nanos`, being woken included, here and perhaps on the other side:
  // would it have come in time for a thread that spins?
  void NoteSleep(int64_t nanos) { NoteSpin(nanos <= longest_spin_nanos_ + kWakingNanos); }

 private:
  static constexpr int64_t kWakingNanos = 150'000;
  static constexpr int kEnough = 4;
  static constexpr int kMost = 8;
  void Add(int credit) {
    credit_.store(std::clamp(credit_.load(std::memory_order_relaxed) + credit, -kMost, kMost),
                  std::memory_order_relaxed);
  }
  const int64_t longest_spin_nanos_;
  std::atomic<int> credit_{0};
};

}  // namespace muster
