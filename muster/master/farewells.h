// Sessions that are over, of which workers are told.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "muster/base/mutex.h"
#include "muster/base/scheduler.h"
#include "muster/transport/worker_api.h"

namespace muster {

// A worker that was stopped or cut off when a session was closed still has it when it is back, and
// as its master lives nobody else would take it away. It is told again, at growing intervals and
// for a day. Thread-safe.
class Farewells : public std::enable_shared_from_this<Farewells> {
 public:
  explicit Farewells(Scheduler& scheduler) : scheduler_(scheduler) {}

  // Tells `worker` that `session` is over; `done` with the answer, or when there is none.
  void Say(const std::shared_ptr<WorkerApi>& worker, const std::string& session,
           CallDone<Empty> done);
  // From now on nothing is said again.
  void Stop();
  // Those that have not arrived.
  size_t unsaid() const;

 private:
  struct Unsaid {
    std::shared_ptr<WorkerApi> worker;
    std::deque<std::string> sessions;
    absl::Time since;
    absl::Duration wait;
  };

  void Keep(const std::shared_ptr<WorkerApi>& worker, const std::string& session);
  void AgainLaterLocked(const Unsaid& unsaid) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Again(const WorkerApi* worker);
  void Answered(const WorkerApi* worker, bool was_lost);
  std::vector<Unsaid>::iterator FindLocked(const WorkerApi* worker)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Scheduler& scheduler_;
  mutable Mutex mutex_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Unsaid> unsaid_ ABSL_GUARDED_BY(mutex_);  // by worker
};

}  // namespace muster
