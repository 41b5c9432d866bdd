// Cancels work in progress: each wait starts a CancelCallback, and Cancel runs all of them once.
#pragma once

#include <atomic>

#include "muster/base/mutex.h"
#include "muster/base/ref_counted.h"
#include "muster/base/status.h"

namespace muster {

class CancelCallback;

// CancelCallback (cancel_callback.h) is how a call hears of it. Thread-safe.
class Cancellation {
 public:
  Cancellation() = default;
  ~Cancellation();
  Cancellation(const Cancellation&) = delete;
  Cancellation& operator=(const Cancellation&) = delete;

  bool cancelled() const {
    const Core* const core = core_.load(std::memory_order_acquire);
    return core != nullptr && core->cancelled.load(std::memory_order_acquire);
  }
  // Why; OK while not cancelled.
  absl::Status reason() const;
  // Runs every callback that has been started, one after the other, in the order of their starts;
  // later calls do nothing.
  void Cancel(absl::Status reason);

 private:
  friend class CancelCallback;

  // Held by the callbacks too: one may be released, or end, while or after the cancellation goes.
  struct Core : RefCounted {
    std::atomic<bool> cancelled{false};
    Mutex mutex;
    CondVar changed;  // a callback has returned
    absl::Status reason ABSL_GUARDED_BY(mutex);
    // The callbacks to run, a list through themselves.
    CancelCallback* first ABSL_GUARDED_BY(mutex) = nullptr;
    CancelCallback* last ABSL_GUARDED_BY(mutex) = nullptr;
  };
  RefPtr<Core> ShareCore() const;
  // Null until a callback starts or Cancel is called: most steps end without either.
  mutable std::atomic<Core*> core_{nullptr};
};

}  // namespace muster
