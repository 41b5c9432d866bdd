// Whether the task at the other end of open calls is alive.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "muster/base/cancellation.h"
#include "muster/base/mutex.h"
#include "muster/base/scheduler.h"
#include "muster/transport/api/peer.h"
#include "muster/transport/watch/watched_peers.h"

namespace muster {

// What a call does while nothing listens at the address of the task.
enum class InAbsence : uint8_t { kFails, kFailsLater, kWaits };

// A failure detector for one task: heartbeats while calls to the task are open.
//
// A step may wait for ever for a queue, so no deadline of a call can tell a slow task from a dead
// one. What can is a question that every living task answers at once (Hello, or GetStatus where a
// task of TensorFlow does not know that), put every `heartbeat` over the connection of the calls.
// Without open calls nothing is asked.
//
//   answers   Any reply is a sign of life, be it to a heartbeat or to an ordinary call, and also an
//             error, as long as only the task itself can have given it. Silence is zero again.
//   silence   The time for which questions have gone unanswered. It is added up tick by tick, and a
//             tick counts for two heartbeats at most: a process that was itself stopped does not
//             blame the others when it goes on. After `warn_after` the task is named in the log.
//             After `fail_after` it counts as dead: open calls are cancelled with Unavailable
//             (those younger than `warn_after` a little later), and new ones fail at once. It is
//             asked for another five minutes, and one answer brings it back.
//   renewal   It may be the connection that is dead and not the task, as when a firewall has
//             forgotten it. So each `fail_after` of silence ends with a new connection. Calls over
//             the old one are not answered any more and fail `warn_after` after their start; what
//             is heard over it says nothing about the new one.
//   absence   A refused connection is not silence: nothing listens at the address, because the task
//             has not started yet or is gone. InAbsence says what this means for a call: it waits
//             for the task to start (kWaits), or it belongs to a session that is lost with the
//             task, which gets three seconds to come back (kFailsLater). Other calls (kFails) end
//             by themselves; those that still wait for a connection to be retried, after the same
//             three seconds.
//   restart   Answers name the incarnation of the task, a number that it draws when it starts. A
//             call whose task answers with another one than before has lost its server although all
//             questions are answered: it fails with Aborted.
//
// Thread-safe. Held by shared pointers.
class TaskWatch : public std::enable_shared_from_this<TaskWatch> {
 public:
  // `scheduler` outlives the watch.
  TaskWatch(std::string task, std::shared_ptr<WorkerApi> worker, Scheduler& scheduler,
            LivenessOptions options)
      : task_(std::move(task)),
        worker_(std::move(worker)),
        peer_(PeerOf(*worker_)),
        scheduler_(scheduler),
        options_(options),
        last_wanted_(scheduler.clock().NowNanos()) {}

  const std::string& task() const { return task_; }
  WorkerApi& worker() { return *worker_; }
  PeerApi* peer() const { return peer_; }  // may be null
  Scheduler& scheduler() const { return scheduler_; }
  const LivenessOptions& options() const { return options_; }

  // A call is opened; cancelling `call` ends it. The result is its number, for Closed; Unavailable
  // where the task is known to be silent, unless the call is patient: then it is given a moment.
  absl::StatusOr<uint64_t> Open(std::shared_ptr<Cancellation> call, bool patient,
                                InAbsence in_absence);
  // The call has ended; `is_answered`: the task has done what was asked of it.
  void Closed(uint64_t number, bool is_answered);

  bool IsSilent() const;
  // Whether new sessions should use the connection: it answers, or was used a short while ago. One
  // that was idle for long may be dead without anybody knowing.
  bool IsTrusted() const;
  // Calls from now on go over a new connection. Those under way are given a moment to end.
  void Renew();
  // The task has answered something that was not asked here.
  void Lives() { Heard(absl::OkStatus(), 0); }

 private:
  struct OpenCall {
    std::shared_ptr<Cancellation> cancellation;
    int64_t opened = 0;
    int renewals = 0;  // of the connection, before the call was made
    InAbsence in_absence = InAbsence::kFails;
    std::optional<uint64_t> incarnation;  // of the task, as first heard after the call was made
  };
  using Calls = std::vector<std::shared_ptr<Cancellation>>;

  bool IsSilentLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return silence_ >= options_.fail_after;
  }
  // Although no call waits for it.
  bool AsksAgainLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Silent(absl::Duration silence) const;
  absl::Status Gone(const absl::Status& status) const;

  void TickLaterLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Tick();
  // Several questions may be under way: each may get lost. What becomes of one over a connection
  // that was left meanwhile says nothing about the connection of the calls.
  void Ask();
  // Whether the connection that was used after this many renewals has been replaced.
  bool HasLeft(int renewals) const;
  // The outcome of a question; `incarnation` is 0 where it is not known.
  void Heard(const absl::Status& status, uint64_t incarnation);
  // A sign of life. Whether the task was missed before.
  bool HeardLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Nothing listens at the address.
  void Missed(const absl::Status& status);

  template <typename Condition>
  Calls TakeLocked(Condition condition) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Calls that have waited long enough for a silent task, or over a connection that was silent and
  // has been left.
  Calls TakeSilencedLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Calls that were made to another life of the task.
  Calls TakeOlderLocked(uint64_t incarnation) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static void Fail(const Calls& calls, const absl::Status& status);

  const std::string task_;
  const std::shared_ptr<WorkerApi> worker_;
  PeerApi* const peer_;
  Scheduler& scheduler_;
  const LivenessOptions options_;
  mutable Mutex mutex_;
  std::map<uint64_t, OpenCall> calls_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_call_ ABSL_GUARDED_BY(mutex_) = 0;
  bool ticking_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t last_tick_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t last_wanted_ ABSL_GUARDED_BY(mutex_);                  // when a call was last made
  bool unanswered_ ABSL_GUARDED_BY(mutex_) = false;              // asked, and nothing heard since
  std::optional<int64_t> absent_since_ ABSL_GUARDED_BY(mutex_);  // nothing listens at the address
  absl::Duration silence_ ABSL_GUARDED_BY(mutex_);
  absl::Duration renew_after_ ABSL_GUARDED_BY(mutex_);  // so much silence
  int renewals_ ABSL_GUARDED_BY(mutex_) = 0;            // of the connection
  bool warned_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_stock_ ABSL_GUARDED_BY(mutex_) = false;  // does not know Hello
};

}  // namespace muster
