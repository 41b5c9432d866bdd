// Ends steps that wait for work that was cancelled elsewhere.
#pragma once

#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "muster/base/cancellation.h"
#include "muster/base/mutex.h"
#include "muster/client/step_plan.h"

namespace muster {

// Thread-safe.
class StepLinks {
 public:
  // Steps that run `node` end, at once or when they begin, once `cancellation` is cancelled.
  void Add(const Node* node, std::shared_ptr<Cancellation> cancellation);
  // What ends a step of this plan; null: nothing. The newest link of a node counts.
  std::shared_ptr<Cancellation> Of(const StepPlan& plan);

 private:
  std::atomic<bool> any_{false};
  Mutex mutex_;
  std::vector<std::pair<const Node*, std::shared_ptr<Cancellation>>> links_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster
