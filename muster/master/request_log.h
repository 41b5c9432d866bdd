// Requests that were sent before: a step that is asked for twice runs once.
#pragma once

#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"

#include "muster/base/mutex.h"
#include "muster/master/master.h"

namespace muster {

// Clients that lost the connection send a request again with the same id. Thread-safe.
class RequestLog : public std::enable_shared_from_this<RequestLog> {
 public:
  explicit RequestLog(std::shared_ptr<const MasterOptions> options)
      : options_(std::move(options)), scheduler_(*options_->scheduler) {}

  // ABORTED when the id was seen before. Zero is never seen.
  absl::Status Admit(absl::string_view method, absl::string_view session, int64_t request_id);

  // A step that is to be run now, as its cancellation and `done` say. The cancellation follows the
  // callers: it is cancelled when none is left.
  template <typename Reply>
  struct Admission {
    std::shared_ptr<Cancellation> cancellation;
    CallDone<Reply> done;
  };
  // Nothing where `done` gets, now or later, the reply of an earlier request: the caller has
  // nothing to do.
  std::optional<Admission<RunStepReply>> AdmitStep(const CallOptions& call,
                                                   const RunStepRequest& request,
                                                   CallDone<RunStepReply> done);
  std::optional<Admission<RunCallableReply>> AdmitCallable(const CallOptions& call,
                                                           const RunCallableRequest& request,
                                                           CallDone<RunCallableReply> done);

 private:
  // What was asked for, as far as two requests with one id can be told apart.
  struct Asked {
    absl::string_view method;  // lives for ever
    std::string session;
    size_t fingerprint = 0;
    bool operator==(const Asked&) const = default;
  };
  struct Waiter {
    int64_t number;
    CallDone<RunStepReply> done;
  };
  struct Step {
    Asked asked;
    bool finished = false;
    // While it runs.
    std::list<Waiter> waiters;
    std::shared_ptr<Cancellation> cancellation;
    std::optional<Scheduler::TimerId> grace;
    // Afterwards.
    absl::StatusOr<RunStepReply> reply = absl::UnknownError("");
    size_t bytes = 0;
  };

  // Replies of all kinds are kept as those of steps.
  std::optional<Admission<RunStepReply>> Begin(int64_t request_id, Asked asked,
                                               const std::shared_ptr<Cancellation>& caller,
                                               CallDone<RunStepReply> done);
  void Remember(int64_t request_id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Wait(int64_t request_id, Step& step, const std::shared_ptr<Cancellation>& cancellation,
            CallDone<RunStepReply> done) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Lost(int64_t request_id, int64_t waiter, absl::Status reason);
  void Finished(int64_t request_id, absl::StatusOr<RunStepReply> reply);

  const std::shared_ptr<const MasterOptions> options_;
  Scheduler& scheduler_;
  Mutex mutex_;
  absl::flat_hash_set<int64_t> seen_ ABSL_GUARDED_BY(mutex_);
  std::deque<int64_t> seen_order_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<int64_t, Step> steps_ ABSL_GUARDED_BY(mutex_);
  std::deque<int64_t> finished_order_ ABSL_GUARDED_BY(mutex_);
  size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t next_waiter_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace muster
