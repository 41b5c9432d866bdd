// Threads for work that may wait for something that cannot be interrupted, such as a file on a
// server that does not answer. A scheduler's threads must not do that.
#pragma once

#include <memory>
#include <string>

#include "absl/time/time.h"

#include "muster/base/caller.h"
#include "muster/base/scheduler.h"
#include "muster/base/status.h"

namespace muster {

// There are as many threads as there is work, up to a limit; idle ones leave after a while.
//
// No caller can take all of them. As switches divide a shared buffer among queues (Choudhury and
// Hahne's dynamic thresholds), a caller may have as many threads as are free: one caller alone gets
// half of them, and while n callers want as many as they can get, one part in n + 1 stays free, so
// that the work of another caller starts at once. All callers of a host together may have three
// times as many as are free: the last quarter is left to other hosts. Threads that are blocked
// count until they return, whatever has become of the step.
//
// Thread-safe.
class BlockingThreads {
 public:
  struct Options {
    int max_threads = 128;
    size_t max_waiting = 1024;  // tasks of one caller, for a thread
    absl::Duration idle = absl::Seconds(10);
  };
  // Those of the process.
  static BlockingThreads& Global();

  explicit BlockingThreads(Options options);
  // Does not wait: threads that work go when they are done, and what waits is still done.
  ~BlockingThreads() = default;

  // Where a task waits.
  struct Ticket {
    std::string caller;
    uint64_t number = 0;
  };
  // Runs `task` on a thread that is free or new: at once, or when the caller may have another
  // thread. ResourceExhausted, and `task` is dropped, when too many tasks of the caller wait.
  absl::StatusOr<Ticket> Run(const Caller& caller, Task task);
  // Takes back a task that still waits for its caller's turn. Null: it runs, or soon will.
  Task Withdraw(const Ticket& ticket);

 private:
  struct State;
  const std::shared_ptr<State> state_;
};

}  // namespace muster
