// Where and when a task runs: on the work-stealing pool in production, on a seeded single-threaded
// scheduler with virtual time in simulations. Nothing may block on a scheduler's threads.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/time/time.h"

#include "muster/base/clock.h"

namespace muster {

using Task = absl::AnyInvocable<void() &&>;

// Thread-safe.
class Scheduler {
 public:
  virtual ~Scheduler() = default;

  // Runs `task` soon, never inside this call.
  virtual void Schedule(Task task) = 0;
  // Runs `task` once, no earlier than `delay` from now. The result cancels it (false: already
  // started).
  using TimerId = uint64_t;
  virtual TimerId ScheduleAfter(absl::Duration delay, Task task) = 0;
  virtual bool CancelTimer(TimerId timer) = 0;
  // Threads that can run tasks at once, the caller of ParallelFor included.
  virtual int parallelism() const = 0;
  virtual Clock& clock() = 0;

  // Waits until `done` holds: true. The calling thread runs tasks meanwhile. False: `limit` has
  // passed by this scheduler's clock, or nothing can happen any more, which only a simulation
  // knows. What makes `done` true on another thread wakes the one that waits (WaitingThread::Wake
  // in base/threads/waiting_thread.h). Requires: the caller holds no lock that a task could want.
  virtual bool HelpUntil(absl::FunctionRef<bool()> done,
                         absl::Duration limit = absl::InfiniteDuration()) = 0;

  // Calls body(begin, end) over disjoint ranges that cover [0, count), partly on other threads, and
  // returns when all have returned. `cost_per_item` is a rough number of nanoseconds: little work
  // stays on the calling thread.
  virtual void ParallelFor(int64_t count, double cost_per_item_ns,
                           absl::FunctionRef<void(int64_t begin, int64_t end)> body) = 0;
};

// A pool of `threads` workers, each with its own deque; idle ones steal. ParallelFor's caller works
// too.
std::unique_ptr<Scheduler> NewThreadPool(int threads);

// The pool that local sessions share by default: one thread fewer than the machine has cores (at
// least one), because the thread that calls Session::Run works as well.
Scheduler& DefaultScheduler();

// Runs everything on the thread that calls Run*, in an order drawn from `seed`, on a virtual clock
// that jumps to the next timer when nothing is ready. Schedule may be called from any thread.
class SimulatedScheduler : public Scheduler {
 public:
  static std::unique_ptr<SimulatedScheduler> Create(uint64_t seed);
  // Runs one ready task; false when nothing is ready (timers may remain).
  virtual bool RunOne() = 0;
  // Runs ready tasks and timers until none is left or `until` holds. False when work ran out first.
  virtual bool RunUntil(absl::FunctionRef<bool()> until) = 0;
};

}  // namespace muster
