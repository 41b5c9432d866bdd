// Tells workers which sessions are closed.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "muster/base/mutex.h"
#include "muster/base/scheduler.h"
#include "muster/transport/api/worker_api.h"

namespace muster {

// A worker that was stopped or cut off when a session was closed still has it when it comes back,
// and because its master is alive nothing else would remove it. The call is repeated at growing
// intervals for a day. Thread-safe.
class Farewells : public std::enable_shared_from_this<Farewells> {
 public:
  explicit Farewells(Scheduler& scheduler) : scheduler_(scheduler) {}

  // Tells `worker` that `session` is over; `done` with the answer, or when there is none.
  void Say(const std::shared_ptr<WorkerApi>& worker, const std::string& session,
           CallDone<Empty> done);
  // From now on no call is repeated.
  void Stop();
  // Farewells that have not been answered.
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
