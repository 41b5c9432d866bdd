// Steps that are over, of which workers are told.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "muster/base/mutex.h"
#include "muster/base/scheduler.h"
#include "muster/transport/worker_api.h"

namespace muster {

// Tasks of Muster hear of them with the next step that they run, or soon after where there is none;
// others at once. A session that is closed takes its steps along. What is lost with a call that
// fails a worker forgets by itself, later.
// Thread-safe.
class FinishedSteps : public std::enable_shared_from_this<FinishedSteps> {
 public:
  explicit FinishedSteps(Scheduler& scheduler) : scheduler_(scheduler) {}

  void Add(const std::shared_ptr<WorkerApi>& worker, int64_t step_id);
  // Those of which `worker` has not heard.
  std::vector<int64_t> Take(WorkerApi& worker);
  // Nobody needs to hear of those that are untold.
  void Forget();
  // Says it now.
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
