// The steps that a worker knows, by their ids alone: a peer that asks for a tensor names no
// session.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"

#include "muster/base/mutex.h"
#include "muster/base/recent_ids.h"
#include "muster/runtime/collective_buffers.h"
#include "muster/worker/execution.h"
#include "muster/worker/remote_rendezvous.h"
#include "muster/worker/worker_session.h"

namespace muster {

// The fields without a comment belong to the table.
struct WorkerStep {
  explicit WorkerStep(int64_t step_id) : id(step_id) {}
  const int64_t id;
  std::shared_ptr<RemoteRendezvous> rendezvous;  // constant
  const std::shared_ptr<CollectiveBuffers> buffers = std::make_shared<CollectiveBuffers>();
  std::shared_ptr<WorkerSession> session;  // null until a graph of the step runs here
  std::vector<std::weak_ptr<Execution>> executions;
  std::shared_ptr<Execution> partial;
  int64_t early_receives = 0;
  int running = 0;
  uint64_t idle_since = 0;  // a place in the order; zero: running, or not started
};

// Thread-safe.
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
  // The same for bytes of a collective. A step that failed here says so; one that was cleaned up
  // may be run again under its id.
  absl::StatusOr<std::shared_ptr<WorkerStep>> ForBuffer(int64_t id);
  // A graph with collectives has failed: other ranks may ask for it later.
  void Failed(int64_t id, const absl::Status& status);
  // They were taken back before they were there: true when the step has started.
  bool ReceiveStopped(const std::shared_ptr<WorkerStep>& step, int64_t count = 1);

  // For a graph that is about to run in `session`; EndRun must follow.
  absl::StatusOr<std::shared_ptr<WorkerStep>> StartRun(int64_t id,
                                                       std::shared_ptr<WorkerSession> session);
  void EndRun(const std::shared_ptr<WorkerStep>& step);
  void AddExecution(WorkerStep& step, const std::shared_ptr<Execution>& execution);
  // The execution of a partial run, made by `make` where there is none yet.
  struct Partial {
    std::shared_ptr<Execution> execution;
    bool is_new = false;
  };
  Partial PartialRun(WorkerStep& step, absl::FunctionRef<std::shared_ptr<Execution>()> make);

  // The step is over: whoever waits for it hears so, and so will those who come late.
  void Finish(int64_t id);
  // The steps of a session that run no more and are not over.
  std::vector<int64_t> Idle(const WorkerSession* session) const;
  // Steps of one session, or all of them, end with `reason`.
  void Stop(const WorkerSession* session, const absl::Status& reason);
  int64_t num_running() const;

 private:
  void ForgetEarlyLocked(WorkerStep& step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    early_receives_ -= step.early_receives;
    step.early_receives = 0;
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
