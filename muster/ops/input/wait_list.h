// Operations that wait for a change of something: each is tried now and after every change, in the
// order in which they came.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"

#include "muster/base/mutex.h"
#include "muster/base/status.h"
#include "muster/tensor/tensor.h"

namespace muster {

// Thread-safe. Derived classes keep their state under `mutex_`.
class WaitList : public Resource {
 public:
  using Tuple = std::vector<Tensor>;
  using Ticket = uint64_t;
  using TupleDone = absl::AnyInvocable<void(absl::StatusOr<Tuple>) &&>;
  // As Queue::OnWait.
  using OnWait = absl::FunctionRef<bool(Ticket)>;

  // Withdraws what waits under that ticket. False: it was over already. Flush afterwards.
  bool Cancel(Ticket ticket);
  void Flush();

 protected:
  // One try, under the lock: a result, or nothing when it has to wait on.
  using Try = absl::AnyInvocable<std::optional<absl::StatusOr<Tuple>>()>;
  void Await(Try attempt, OnWait on_wait, TupleDone done);

  mutable Mutex mutex_;

 private:
  struct Waiting {
    Ticket ticket = 0;
    Try attempt;
    TupleDone done;
  };
  struct Finished {
    TupleDone done;
    absl::StatusOr<Tuple> result;
  };
  void AdvanceLocked(std::vector<Finished>& finished) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Ticket last_ticket_ ABSL_GUARDED_BY(mutex_) = 0;
  std::list<Waiting> waiting_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster
