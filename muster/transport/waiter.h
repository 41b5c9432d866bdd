// How a thread waits for the answer to its call: it reads what comes from the task that it has
// called itself, so that nobody has to be woken for the answer.
#pragma once

#include <atomic>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"

namespace muster {

namespace fast {
class Link;
}

// One for each thread; others may wake it at any time. Thread-safe.
class Waiter {
 public:
  static std::shared_ptr<Waiter> OfThisThread();
  ~Waiter();
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;

  // Returns when `done` holds, or earlier: after `most`, or at once where the last call of this
  // thread did not go to a neighbour. Requires: this thread's; no lock is held that the reader of
  // an answer could want.
  void WaitUntil(absl::FunctionRef<bool()> done, absl::Duration most);
  // What it waits for may have come.
  void Wake();

  // This thread has made a call over the link.
  static void NoteCall(std::weak_ptr<fast::Link> link);

 private:
  Waiter();
  const int event_;  // a descriptor
  std::atomic<bool> waits_{false};
  std::weak_ptr<fast::Link> link_;  // only the thread itself looks at it
};

}  // namespace muster
