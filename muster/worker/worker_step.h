// The steps on this task: each is known from the moment that a peer asks for one of its values,
// runs one graph and is over when its master says so.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"

#include "muster/base/recent_ids.h"
#include "muster/collective/step/collective_buffers.h"
#include "muster/task/task_step.h"
#include "muster/worker/remote_rendezvous.h"
#include "muster/worker/worker_session.h"

namespace muster {

// Thread-safe.
class WorkerStep : public TaskStep, public std::enable_shared_from_this<WorkerStep> {
 public:
  using Listener = absl::AnyInvocable<void(absl::Status) &&>;

  WorkerStep(int64_t id, std::shared_ptr<RemoteRendezvous> remote_rendezvous)
      : TaskStep(id, remote_rendezvous), rendezvous(std::move(remote_rendezvous)) {}

  const std::shared_ptr<RemoteRendezvous> rendezvous;
  // Bytes of collectives. Made when first asked for: most steps have none.
  std::shared_ptr<CollectiveBuffers> buffers();

  // Runs the graph, on the scheduler unless it takes hardly any time. Once, after Begin.
  void Start();
  // Called when the graph has ended, at once if it has: with the error that came first.
  void WhenDone(Listener listener);
  // Kernels are cancelled, receives end at once, and after `grace` everything else that waits for
  // the step.
  void Cancel(absl::Duration grace, Scheduler& control);
  // Whatever waits at the rendezvous or for bytes ends with `reason`, as a derived error.
  void Abort(const absl::Status& reason);
  // After `grace` whatever waits at the rendezvous of a step that was cancelled ends.
  void AbortAfter(absl::Duration grace, Scheduler& control);

 private:
  friend class StepTable;
  void RunHere();
  void Ended(const absl::Status& status);

  std::atomic<std::thread::id> running_in_;  // the thread that is inside of RunHere
  Mutex mutex_;
  std::optional<absl::Status> ended_ ABSL_GUARDED_BY(mutex_);
  std::vector<Listener> listeners_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<CollectiveBuffers> buffers_ ABSL_GUARDED_BY(mutex_);  // may be null
  absl::Status aborted_ ABSL_GUARDED_BY(mutex_);

  // What the table knows of the step, under its lock.
  std::shared_ptr<WorkerSession> session_;  // null until a graph of the step runs here
  bool is_partial_ = false;
  int64_t early_receives_ = 0;
  int running_calls_ = 0;
  uint64_t idle_since_ = 0;  // a place in the order; zero: running, or not started
};

// The steps that a worker knows, by their ids alone: a peer that asks for a tensor names no
// session. Thread-safe.
class StepTable {
 public:
  // Peers that wait for steps that have not started here, over all steps.
  static constexpr int64_t kMaxEarlyReceives = 100'000;
  // Steps that have run but not been cleaned up; beyond it the oldest are.
  static constexpr size_t kMaxIdleSteps = 10'000;
  static constexpr size_t kFinishedSteps = 10'000;
  static constexpr size_t kFailedSteps = 1'000;

  StepTable(Scheduler& scheduler, std::shared_ptr<TransferLog> log)
      : scheduler_(scheduler), log_(std::move(log)) {}

  // For a peer that wants `count` values. Aborted for a step that is over, ResourceExhausted for
  // too many that have not begun.
  absl::StatusOr<std::shared_ptr<WorkerStep>> ForReceive(int64_t id, int64_t count = 1);
  // The same for bytes of a collective. For a step that failed here its error; one that was cleaned
  // up may be run again under its id.
  absl::StatusOr<std::shared_ptr<WorkerStep>> ForBuffer(int64_t id);
  // A graph with collectives has failed: other ranks may ask for it later.
  void Failed(int64_t id, const absl::Status& status);
  // They were taken back before they were there: true when the step has started.
  bool ReceiveStopped(const std::shared_ptr<WorkerStep>& step, int64_t count = 1);

  // For a RunGraph call of `session`; EndRun must follow. A step runs one graph here: `begin` is
  // called, under the lock, for the step's first call; later ones are parts of the same partial
  // run.
  struct Started {
    std::shared_ptr<WorkerStep> step;
    bool is_first = false;
  };
  absl::StatusOr<Started> StartRun(int64_t id, std::shared_ptr<WorkerSession> session,
                                   bool is_partial, absl::FunctionRef<void(WorkerStep&)> begin);
  void EndRun(const std::shared_ptr<WorkerStep>& step);

  // The step is over: receivers that wait for it get an error, and so do later ones.
  void Finish(int64_t id);
  // The steps of a session that run no more and are not over.
  std::vector<int64_t> Idle(const WorkerSession* session) const;
  // Steps of one session, or all of them, end with `reason`.
  void Stop(const WorkerSession* session, const absl::Status& reason);
  int64_t num_running() const;

 private:
  void ForgetEarlyLocked(WorkerStep& step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    early_receives_ -= step.early_receives_;
    step.early_receives_ = 0;
  }
  std::shared_ptr<WorkerStep> AddEarlyLocked(int64_t id, int64_t count)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status TooManyEarlyLocked(int64_t count) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::shared_ptr<WorkerStep> AddLocked(int64_t id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Scheduler& scheduler_;
  const std::shared_ptr<TransferLog> log_;
  mutable Mutex mutex_;
  absl::flat_hash_map<int64_t, std::shared_ptr<WorkerStep>> steps_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, std::shared_ptr<WorkerStep>> idle_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_idle_ ABSL_GUARDED_BY(mutex_) = 0;
  RecentIds finished_ ABSL_GUARDED_BY(mutex_){kFinishedSteps};
  absl::flat_hash_map<int64_t, absl::Status> failed_ ABSL_GUARDED_BY(mutex_);
  std::deque<int64_t> failed_order_ ABSL_GUARDED_BY(mutex_);
  int64_t early_receives_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t running_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace muster
