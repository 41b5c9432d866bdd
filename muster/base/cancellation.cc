#include "muster/base/cancellation.h"

#include <utility>

#include "muster/base/cancel_callback.h"

namespace muster {

Cancellation::~Cancellation() {
  if (Core* const core = core_.load(std::memory_order_acquire)) core->Unref();
}

RefPtr<Cancellation::Core> Cancellation::ShareCore() const {
  Core* core = core_.load(std::memory_order_acquire);
  if (core == nullptr) {
    RefPtr<Core> made = MakeRef<Core>();
    if (core_.compare_exchange_strong(core, made.get(), std::memory_order_acq_rel)) {
      made->Ref();  // the one of core_
      return made;
    }
  }
  return RefPtr<Core>::Share(core);
}

absl::Status Cancellation::reason() const {
  Core* const core = core_.load(std::memory_order_acquire);
  if (core == nullptr) return absl::OkStatus();
  MutexLock lock(core->mutex);
  return core->reason;
}

void Cancellation::Cancel(absl::Status reason) {
  const RefPtr<Core> core = ShareCore();  // a callback may end this
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
