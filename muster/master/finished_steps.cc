#include "muster/master/finished_steps.h"

#include <algorithm>
#include <utility>

namespace muster {
namespace {

// Not soon: a call to a task that has just gone makes gRPC wait before it connects again, and the
// task may be back before that.
constexpr absl::Duration kLongestWait = absl::Seconds(5);
// This many are worth a call of their own.
constexpr size_t kMostUntold = 64;

}  // namespace

void FinishedSteps::Add(const std::shared_ptr<WorkerApi>& worker, int64_t step_id) {
  if (!worker->IsMuster()) return Tell(worker, step_id);
  bool is_full = false;
  {
    MutexLock lock(mutex_);
    auto found = std::find_if(untold_.begin(), untold_.end(),
                              [&](const Untold& each) { return each.worker == worker; });
    if (found == untold_.end()) found = untold_.insert(untold_.end(), {worker, {}});
    is_full = found->steps.size() >= kMostUntold;
    if (!is_full) found->steps.push_back(step_id);
    if (!timer_) {
      timer_ =
          scheduler_.ScheduleAfter(kLongestWait, [self = shared_from_this()] { self->TellAll(); });
    }
  }
  if (is_full) Tell(worker, step_id);
}

std::vector<int64_t> FinishedSteps::Take(WorkerApi& worker) {
  MutexLock lock(mutex_);
  for (Untold& each : untold_) {
    if (each.worker.get() == &worker) return std::exchange(each.steps, {});
  }
  return {};
}

void FinishedSteps::Forget() {
  std::vector<Untold> forgotten;
  std::optional<Scheduler::TimerId> timer;
  {
    MutexLock lock(mutex_);
    timer = std::exchange(timer_, std::nullopt);
    forgotten.swap(untold_);
  }
  if (timer) scheduler_.CancelTimer(*timer);
}

void FinishedSteps::Tell(const std::shared_ptr<WorkerApi>& worker, int64_t step_id) {
  worker->CleanupGraph({}, step_id, [worker](absl::StatusOr<Empty>) {});
}

void FinishedSteps::TellAll() {
  std::vector<Untold> untold;
  {
    MutexLock lock(mutex_);
    timer_.reset();
    untold.swap(untold_);
  }
  for (const Untold& each : untold) {
    for (const int64_t step : each.steps) Tell(each.worker, step);
  }
}

}  // namespace muster
