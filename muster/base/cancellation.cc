#include "muster/base/cancellation.h"

#include <utility>

#include "muster/base/cancel_callback.h"

namespace muster {

absl::Status Cancellation::reason() const {
  MutexLock lock(core_->mutex);
  return core_->reason;
}

void Cancellation::Cancel(absl::Status reason) {
  const RefPtr<Core> core = core_;  // a callback may end this
  {
    MutexLock lock(core->mutex);
    if (core->cancelled.load(std::memory_order_relaxed)) return;
    core->reason = reason;
    core->cancelled.store(true, std::memory_order_release);
  }
  while (CancelCallback::RunFirst(*core, reason)) {
  }
}

}  // namespace muster
