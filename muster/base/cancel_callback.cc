#include "muster/base/cancel_callback.h"

#include "muster/base/mutex.h"

namespace muster {

//            Start            Cancel             returns
//   kIdle ----------> kArmed ----------> kRunning ----------> kDone
//     |                 |
//     +-----------------+--------> kReleased                   by Release

CancelCallback::~CancelCallback() {
  Release();
  if (gone_ != nullptr) *gone_ = true;
}

bool CancelCallback::Start(const Cancellation* cancellation, Callback callback) {
  if (Arm(cancellation, callback)) return true;
  RunNow(std::move(callback));
  return false;
}

bool CancelCallback::Arm(const Cancellation* cancellation, Callback& callback) {
  if (cancellation == nullptr) return true;
  core_ = cancellation->ShareCore();
  Entry entry = Entry::kOpen;
  if (!entry_.compare_exchange_strong(entry, Entry::kStarted, std::memory_order_acq_rel))
    return true;  // released before
  MutexLock lock(core_->mutex);
  if (phase_ != Phase::kIdle) return true;  // released meanwhile
  if (core_->cancelled.load(std::memory_order_relaxed)) return false;
  phase_ = Phase::kArmed;
  callback_ = std::move(callback);
  before_ = core_->last;
  (before_ == nullptr ? core_->first : before_->after_) = this;
  core_->last = this;
  return true;
}

bool CancelCallback::RunFirst(Core& core, const absl::Status& reason) {
  CancelCallback* next;
  {
    MutexLock lock(core.mutex);
    next = core.first;
    if (next == nullptr) return false;
    core.first = next->after_;
    (core.first == nullptr ? core.last : core.first->before_) = nullptr;
    next->phase_ = Phase::kRunning;
    next->runner_ = std::this_thread::get_id();
  }
  next->Run(core, reason);
  return true;
}

void CancelCallback::RunNow(Callback callback) {
  const RefPtr<Core> core = core_;  // the callback may end this
  absl::Status reason;
  {
    MutexLock lock(core->mutex);
    if (phase_ != Phase::kIdle) return;  // released meanwhile
    phase_ = Phase::kRunning;
    runner_ = std::this_thread::get_id();
    callback_ = std::move(callback);
    reason = core->reason;
  }
  Run(*core, reason);
}

void CancelCallback::Run(Core& core, const absl::Status& reason) {
  bool gone = false;
  gone_ = &gone;
  Callback running = std::exchange(callback_, nullptr);
  std::move(running)(reason);
  running = nullptr;  // what it holds goes before Release returns
  if (gone) return;
  MutexLock lock(core.mutex);
  gone_ = nullptr;
  phase_ = Phase::kDone;
  core.changed.NotifyAll();
}

bool CancelCallback::Release(bool wait) {
  Entry entry = Entry::kOpen;
  if (entry_.compare_exchange_strong(entry, Entry::kClosed, std::memory_order_acq_rel)) return true;
  if (entry == Entry::kClosed) return true;
  Callback dropped;  // without the lock
  MutexLock lock(core_->mutex);
  while (wait && phase_ == Phase::kRunning && runner_ != std::this_thread::get_id())
    core_->changed.Wait(core_->mutex);
  if (phase_ == Phase::kRunning || phase_ == Phase::kDone) return false;
  if (phase_ == Phase::kArmed) {
    (before_ == nullptr ? core_->first : before_->after_) = after_;
    (after_ == nullptr ? core_->last : after_->before_) = before_;
    dropped = std::exchange(callback_, nullptr);
  }
  phase_ = Phase::kReleased;
  return true;
}

// --- Cancellations that cancel others

std::shared_ptr<Cancellation> Follow(std::shared_ptr<Cancellation> parent, Scheduler& scheduler) {
  struct Follower {
    Cancellation own;
    CancelCallback link;
  };
  const auto follower = std::make_shared<Follower>();
  std::shared_ptr<Cancellation> own(follower, &follower->own);
  follower->link.StartScheduled(
      std::move(parent), scheduler, std::weak_ptr<Cancellation>(own),
      [](Cancellation& cancellation, const absl::Status& reason) { cancellation.Cancel(reason); });
  return own;
}

void CancelSoon(std::shared_ptr<Cancellation> cancellation, Scheduler& scheduler,
                absl::Status reason) {
  scheduler.Schedule(
      [cancellation = std::move(cancellation), reason = std::move(reason)]() mutable {
        cancellation->Cancel(std::move(reason));
      });
}

}  // namespace muster
