// Deduplicates requests: a step that is requested twice runs once.
#pragma once

#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"

#include "muster/base/cancel_callback.h"
#include "muster/base/mutex.h"
#include "muster/base/recent_ids.h"
#include "muster/master/master.h"

namespace muster {

// Clients that lost the connection send a request again with the same id. Each session has its own
// ids and keeps its own last replies, however many steps other sessions run meanwhile. When all of
// them together hold too many bytes, the sessions that hold most forget their oldest replies.
// Thread-safe.
class RequestLog : public std::enable_shared_from_this<RequestLog> {
 public:
  explicit RequestLog(std::shared_ptr<const MasterOptions> options)
      : options_(std::move(options)), scheduler_(*options_->scheduler) {}

  // From here on requests of the session are remembered, until it is closed.
  void Open(const std::string& session);
  void Close(const std::string& session);

  // A step that is to be run now, as its cancellation and `done` say. The cancellation follows the
  // callers: it is cancelled when none is left.
  template <typename Reply>
  struct Admission {
    std::shared_ptr<Cancellation> cancellation;
    CallDone<Reply> done;
  };
  // Nothing where `done` gets, now or later, the reply of an earlier request: the caller has
  // nothing to do. A request without an id, or of a session that is not open, is always admitted.
  std::optional<Admission<RunStepReply>> AdmitStep(const CallOptions& call,
                                                   const RunStepRequest& request,
                                                   CallDone<RunStepReply> done);
  std::optional<Admission<RunCallableReply>> AdmitCallable(const CallOptions& call,
                                                           const RunCallableRequest& request,
                                                           CallDone<RunCallableReply> done);
  std::optional<Admission<std::string>> AdmitPartialRunSetup(const CallOptions& call,
                                                             const PartialRunSetupRequest& request,
                                                             CallDone<std::string> done);
  std::optional<Admission<int64_t>> AdmitMakeCallable(const CallOptions& call,
                                                      const MakeCallableRequest& request,
                                                      CallDone<int64_t> done);

 private:
  // What was asked for, as far as two requests with one id can be told apart.
  struct Asked {
    absl::string_view method;  // lives for ever
    std::string session;
    int64_t request_id = 0;
    size_t fingerprint = 0;
    bool operator==(const Asked&) const = default;
  };
  struct Waiter {
    int64_t number = 0;
    CallDone<RunStepReply> done;
    CancelCallback on_cancel;
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

  struct Session {
    absl::flat_hash_map<int64_t, Step> steps;  // by the id of the request
    std::deque<int64_t> finished;              // those with a reply, the oldest first
    size_t bytes = 0;                          // of these
    RecentIds seen{kRememberedIds};
    bool is_open = true;
  };
  // Of a session. More than have a reply, so that a step whose reply is lost does not run again.
  static constexpr size_t kRememberedIds = 4096;

  // Replies of all kinds are kept as those of steps.
  template <typename Reply>
  std::optional<Admission<Reply>> AdmitAs(const CallOptions& call, Asked asked,
                                          CallDone<Reply> done);
  std::optional<Admission<RunStepReply>> Begin(Asked asked, const CallOptions& call,
                                               CallDone<RunStepReply> done);
  void Wait(const std::shared_ptr<Session>& session, Step& step,
            const std::shared_ptr<Cancellation>& cancellation, CallDone<RunStepReply> done)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Lost(Session& session, int64_t request_id, int64_t waiter, absl::Status reason);
  void Finished(Session& session, int64_t request_id, absl::StatusOr<RunStepReply> reply);
  // The replies that are kept no longer, to be dropped without the lock.
  using Forgotten = std::vector<absl::StatusOr<RunStepReply>>;
  void KeepLocked(Session& session, int64_t request_id, Forgotten& forgotten)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ForgetOldestLocked(Session& session, Forgotten& forgotten)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Session& LargestLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::shared_ptr<const MasterOptions> options_;
  Scheduler& scheduler_;
  Mutex mutex_;
  // What they hold is guarded too.
  absl::flat_hash_map<std::string, std::shared_ptr<Session>> sessions_ ABSL_GUARDED_BY(mutex_);
  size_t num_keeping_ ABSL_GUARDED_BY(mutex_) = 0;  // sessions that keep a reply
  size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;        // of all replies
  int64_t next_waiter_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace muster
