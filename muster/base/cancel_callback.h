// How work ends when it is cancelled: callbacks, cancellations that follow others, and calls that
// end by their result or by their cancellation.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>

#include "absl/functional/any_invocable.h"

#include "muster/base/cancellation.h"
#include "muster/base/scheduler.h"

namespace muster {

// What to do when something is cancelled, for as long as that is wanted: the counterpart of
// std::stop_callback, and the only way to hear of a cancellation. A member of the object that the
// callback uses, declared last, so that it is the first to go. Thread-safe.
//
//   struct Call {
//     void Start() {
//       on_cancel_.Start(options_.cancellation, [this](auto& why) { Fail(why); });
//     }
//     void Answer(Reply reply) { on_cancel_.Release(); ... }
//     CancelCallback on_cancel_;
//   };
//
// Start is called at most once, Release as often and wherever one likes: before Start, while it is
// under way on another thread, or inside the callback. A call that is answered while it starts
// leaves nothing behind.
class CancelCallback {
 public:
  using Callback = absl::AnyInvocable<void(const absl::Status& reason) &&>;

  CancelCallback() = default;
  ~CancelCallback();
  CancelCallback(const CancelCallback&) = delete;
  CancelCallback& operator=(const CancelCallback&) = delete;

  // Runs `callback` inside of Cancel when `cancellation` (null: never) is cancelled; at once where
  // that has happened already, and then the result is false. A cancellation that ends uncancelled
  // takes nothing with it: the callback just never runs.
  bool Start(const Cancellation* cancellation, Callback callback);
  bool Start(const std::shared_ptr<Cancellation>& cancellation, Callback callback) {
    return Start(cancellation.get(), std::move(callback));
  }
  // The same, but where the cancellation has happened already the callback is dropped.
  bool TryStart(const Cancellation* cancellation, Callback callback) {
    return Arm(cancellation, callback);
  }

  // For what must not happen inside of Cancel, whose thread may hold any lock: runs
  // `then(object, reason)` as a task of `scheduler`, unless the object is gone by then. Where the
  // cancellation has happened already the task is scheduled at once and keeps the object, and the
  // result is false. May be called with locks held. Release does not take back a task that is
  // scheduled: `then` finds out whether it is still wanted.
  template <typename Object, typename Then>
  bool StartScheduled(const std::shared_ptr<Cancellation>& cancellation, Scheduler& scheduler,
                      std::weak_ptr<Object> object, Then then) {
    return StartScheduled(cancellation.get(), scheduler, std::move(object), std::move(then));
  }
  template <typename Object, typename Then>
  bool StartScheduled(const Cancellation* cancellation, Scheduler& scheduler,
                      std::weak_ptr<Object> object, Then then) {
    Callback later = [object, then, &scheduler](const absl::Status& reason) {
      scheduler.Schedule([object, then, reason] {
        if (const auto alive = object.lock()) then(*alive, reason);
      });
    };
    if (Arm(cancellation, later)) return true;
    RunNow([alive = object.lock(), &then, &scheduler](const absl::Status& reason) {
      scheduler.Schedule([alive, then = std::move(then), reason] { then(*alive, reason); });
    });
    return false;
  }

  // Takes the callback back. True: it has not begun and never will. Waits for the callback where
  // that runs on another thread, and for nothing else.
  bool Release() { return Release(/*wait=*/true); }
  // The same without waiting, for callbacks that hold what they use (by a weak pointer until they
  // run). Two threads would wait for each other if each ran, inside of its callback, the end of the
  // call that the other is cancelling.
  bool TryRelease() { return Release(/*wait=*/false); }

 private:
  friend class Cancellation;
  using Core = Cancellation::Core;
  enum class Phase : uint8_t { kIdle, kArmed, kRunning, kDone, kReleased };

  // Runs the first callback in the list; false where there is none.
  static bool RunFirst(Core& core, const absl::Status& reason);
  // False, and `callback` is left as it is, where `cancellation` is cancelled already.
  bool Arm(const Cancellation* cancellation, Callback& callback);
  // After Arm, which has failed.
  void RunNow(Callback callback);
  // Requires: kRunning, on this thread.
  void Run(Core& core, const absl::Status& reason);
  bool Release(bool wait);

  // Start and Release may meet before there is a core whose lock could decide.
  enum class Entry : uint8_t { kOpen, kStarted, kClosed };
  std::atomic<Entry> entry_{Entry::kOpen};
  RefPtr<Core> core_;  // once kStarted

  // Guarded by the core's mutex.
  Phase phase_ = Phase::kIdle;
  Callback callback_;
  CancelCallback* before_ = nullptr;  // in the core's list, while kArmed
  CancelCallback* after_ = nullptr;
  std::thread::id runner_;

  // For the thread that runs the callback: whether that has ended this object.
  bool* gone_ = nullptr;
};

// --- Cancellations that cancel others

// While it lives, cancelling `outer` (may be null) cancels `inner`: for the same reason, or for
// `reason` unless that is OK.
class LinkedCancellation {
 public:
  LinkedCancellation(std::shared_ptr<Cancellation> outer, std::shared_ptr<Cancellation> inner,
                     absl::Status reason = absl::OkStatus()) {
    link_.Start(std::move(outer),
                [inner = std::move(inner), reason = std::move(reason)](const absl::Status& why) {
                  inner->Cancel(reason.ok() ? why : reason);
                });
  }

 private:
  CancelCallback link_;
};

// A cancellation of its own that is also cancelled with `parent` (null: alone).
class ChildCancellation {
 public:
  explicit ChildCancellation(Cancellation* parent) {
    link_.Start(parent, [this](const absl::Status& reason) { own_.Cancel(reason); });
  }
  Cancellation& get() { return own_; }
  // The parent may go afterwards, and is not heard any more.
  void Detach() { link_.Release(); }

 private:
  Cancellation own_;
  CancelCallback link_;
};

// A cancellation of its own that is cancelled soon after `parent` (null: alone), as a task of
// `scheduler`, so that nothing is called back inside of the parent's Cancel.
std::shared_ptr<Cancellation> Follow(std::shared_ptr<Cancellation> parent, Scheduler& scheduler);

// Cancels as a task of `scheduler`.
void CancelSoon(std::shared_ptr<Cancellation> cancellation, Scheduler& scheduler,
                absl::Status reason);

// --- Calls that can be cancelled

// Answered once: by its result or by its cancellation, whichever comes first.
// Thread-safe. Held by shared pointers: by what will answer, and weakly by `on_cancel`.
template <typename Result>
class AnswerOnce {
 public:
  using Done = absl::AnyInvocable<void(Result) &&>;
  explicit AnswerOnce(Done done) : done_(std::move(done)) {}

  // False, and the result is dropped, where the call has been answered.
  bool Answer(Result result) {
    if (answered_.exchange(true, std::memory_order_acq_rel)) return false;
    on_cancel.Release();
    Done done = std::move(done_);
    std::move(done)(std::move(result));
    return true;
  }
  bool answered() const { return answered_.load(std::memory_order_acquire); }

 private:
  std::atomic<bool> answered_{false};
  Done done_;

 public:
  // The caller starts it, the answer releases it.
  CancelCallback on_cancel;
};

}  // namespace muster
