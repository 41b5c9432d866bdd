#include "muster/device/device_failure.h"

#include <utility>

#include "muster/base/mutex.h"

namespace muster {
namespace {

struct Chosen {
  Mutex mutex;
  std::function<void(const absl::Status&)> action ABSL_GUARDED_BY(mutex);
};

Chosen& TheChosen() {
  static auto* const chosen = new Chosen;
  return *chosen;
}

}  // namespace

void SetDeviceFailureAction(std::function<void(const absl::Status& failure)> action) {
  Chosen& chosen = TheChosen();
  MutexLock lock(chosen.mutex);
  chosen.action = std::move(action);
}

void ReportDeviceFailure(const absl::Status& failure) {
  std::function<void(const absl::Status&)> action;
  {
    Chosen& chosen = TheChosen();
    MutexLock lock(chosen.mutex);
    action = chosen.action;
  }
  if (action) action(failure);
}

}  // namespace muster
