// Calls that wait for a message, and a thread that looks at them. gRPC takes memory for a whole
// message without asking, and its length is known to us only when all of it is there.
#pragma once

#include <functional>
#include <list>
#include <string>
#include <thread>

#include "absl/functional/function_ref.h"

#include "muster/base/mutex.h"
#include "muster/base/status.h"

namespace muster {

// The thread sleeps while no call waits. Thread-safe.
class WaitingCalls {
 public:
  class Call {
   public:
    virtual ~Call() = default;
    // gRPC's name of the other end.
    virtual std::string peer_name() const = 0;
    // Called at most once, without locks; End returns false afterwards.
    virtual void Refuse(absl::Status why) = 0;

   private:
    friend class WaitingCalls;
    std::list<Call*>::iterator place_;
    bool is_listed_ = false;
  };
  // Called by the thread, without locks. The result is the pause before the next look.
  using Look = std::function<absl::Duration()>;

  // `first_pause` comes before the first look at calls after a time without any.
  WaitingCalls(std::string thread_name, absl::Duration first_pause, Look look);
  // Requires: no call waits.
  ~WaitingCalls();

  // From now on until End the call may be refused.
  void Begin(Call& call);
  // Its message has arrived, or will not. False: it is refused.
  bool End(Call& call);

  // Visits all that wait, the oldest first, with the lock held.
  void ForEach(absl::FunctionRef<void(Call&)> visit) const;
  // Refuses those for which `is_meant`, which is called with the lock held.
  void RefuseEach(absl::FunctionRef<bool(Call&)> is_meant, const absl::Status& why);

 private:
  void Run();
  // False: the thread ends.
  bool WaitForNextLook();

  const absl::Duration first_pause_;
  const Look look_;
  // Of the thread alone.
  absl::Duration pause_ = first_pause_;
  int looks_without_calls_ = 0;

  mutable Mutex mutex_;
  CondVar changed_;
  std::list<Call*> waiting_ ABSL_GUARDED_BY(mutex_);
  bool is_asleep_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace muster
