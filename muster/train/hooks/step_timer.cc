#include "muster/train/hooks/step_timer.h"

namespace muster {

bool StepTimer::Due(int64_t step) const {
  if (!last_step_.has_value()) return true;
  if (*last_step_ == step) return false;
  if (every_.time.has_value() && clock_.Now() >= last_time_ + *every_.time) return true;
  return every_.steps.has_value() && step >= *last_step_ + *every_.steps;
}

std::optional<StepTimer::Elapsed> StepTimer::Happened(int64_t step) {
  const absl::Time now = clock_.Now();
  std::optional<Elapsed> elapsed;
  if (last_step_.has_value()) elapsed = Elapsed{now - last_time_, step - *last_step_};
  last_time_ = now;
  last_step_ = step;
  return elapsed;
}

}  // namespace muster
