// Tells workers which steps are over.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "muster/base/mutex.h"
#include "muster/base/scheduler.h"
#include "muster/transport/api/worker_api.h"

namespace muster {

// Muster's tasks learn of it with the next step that they run, or a little later if there is none;
// stock tasks at once. Closing a session ends its steps. If the call fails, the worker evicts the
// steps by itself, later.
// Thread-safe.
class FinishedSteps : public std::enable_shared_from_this<FinishedSteps> {
 public:
  explicit FinishedSteps(Scheduler& scheduler) : scheduler_(scheduler) {}

  void Add(const std::shared_ptr<WorkerApi>& worker, int64_t step_id);
  // The steps that `worker` has not been told of.
  std::vector<int64_t> Take(WorkerApi& worker);
  // Drops the steps that workers have not been told of.
  void Forget();
  // Tells the worker now.
  static void Tell(const std::shared_ptr<WorkerApi>& worker, int64_t step_id);

 private:
  struct Untold {
    std::shared_ptr<WorkerApi> worker;
    std::vector<int64_t> steps;
  };
  void TellAll();

  Scheduler& scheduler_;
  Mutex mutex_;
  std::optional<Scheduler::TimerId> timer_ ABSL_GUARDED_BY(mutex_);
  std::vector<Untold> untold_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster
