// Threads for work that may wait for something which nobody can interrupt, such as a file on a
// server that does not answer. A scheduler's threads must not do that.
#pragma once

#include <memory>

#include "absl/time/time.h"

#include "muster/base/scheduler.h"
#include "muster/base/status.h"

namespace muster {

// There are as many threads as there is work, up to a limit; idle ones leave after a while.
// Thread-safe.
class BlockingThreads {
 public:
  struct Options {
    int max_threads = 128;
    size_t max_waiting = 4096;  // for a thread
    absl::Duration idle = absl::Seconds(10);
  };
  // Those of the process.
  static BlockingThreads& Global();

  explicit BlockingThreads(Options options);
  // Does not wait: threads that work go when they are done, and what waits is still done.
  ~BlockingThreads() = default;

  // Runs `task` soon, on a thread that is free or new. ResourceExhausted, and `task` is dropped,
  // when too many wait already.
  absl::Status Run(Task task);

 private:
  struct State;
  const std::shared_ptr<State> state_;
};

}  // namespace muster
