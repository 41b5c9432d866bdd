// Whether what is waited for usually comes so soon that falling asleep would cost more than staying
// awake: being woken takes tens of microseconds, a round trip between two processes a few.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace muster {

// Thread-safe; what two threads note at the same time may count once.
class Pace {
 public:
  // Nobody stays awake for longer than `awake_nanos`.
  explicit Pace(int64_t awake_nanos) : awake_nanos_(awake_nanos) {}

  bool is_quick() const { return credit_.load(std::memory_order_relaxed) >= kEnough; }
  // Who was awake: whether it came in time. One time in three is worth it.
  void NoteAwake(bool came) { Add(came ? 2 : -1); }
  // Who slept: how long it took with being woken, here and perhaps on the other side.
  void NoteSleep(int64_t nanos) { NoteAwake(nanos <= awake_nanos_ + kWakingNanos); }

 private:
  static constexpr int64_t kWakingNanos = 150'000;
  static constexpr int kEnough = 4;
  static constexpr int kMost = 8;
  void Add(int credit) {
    credit_.store(std::clamp(credit_.load(std::memory_order_relaxed) + credit, -kMost, kMost),
                  std::memory_order_relaxed);
  }
  const int64_t awake_nanos_;
  std::atomic<int> credit_{0};
};

// At most so many threads of a process stay awake as there are cores.
class Awake {
 public:
  // Whether this thread may; if so it says when it does no longer.
  static bool TryBegin();
  static void End();
};

}  // namespace muster
