// One step, or one part of a partial run: the fan-out to workers and what becomes of their answers.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "muster/base/cancel_callback.h"
#include "muster/base/mutex.h"
#include "muster/base/scheduler.h"
#include "muster/master/cluster_plan.h"
#include "muster/master/finished_steps.h"
#include "muster/transport/api/call.h"

namespace muster {

struct ClusterStepOptions {
  int64_t step_id = 0;
  int64_t collective_graph_key = 0;                // zero: the id is the master's own
  absl::flat_hash_map<std::string, Tensor> feeds;  // by tensor name in full
  std::vector<std::string> fetches;                // in full
  bool trace = false;
  bool output_partition_graphs = false;
  bool is_partial = false;
  bool is_last_partial = false;
  absl::Duration timeout = absl::ZeroDuration();  // zero: none
  std::shared_ptr<FinishedSteps> finished_steps;
};

struct StepResult {
  absl::flat_hash_map<std::string, Tensor> fetches;  // by tensor name
  std::string metadata;                              // a serialized RunMetadata
};

// Thread-safe. Made when the step is asked for, so that it can be cancelled while its plan is still
// being made.
class ClusterStep : public std::enable_shared_from_this<ClusterStep> {
 public:
  const ClusterStepOptions& options() const { return options_; }
  using Finished = absl::AnyInvocable<void(absl::StatusOr<StepResult>) &&>;

  // `caller` may be null. `finished` is called once, when no call of the step is under way any
  // more.
  static std::shared_ptr<ClusterStep> Create(Scheduler& scheduler, ClusterStepOptions options,
                                             const std::shared_ptr<Cancellation>& caller,
                                             Finished finished);
  // A step that other masters run too. Before Start.
  void UseCommonId(int64_t collective_graph_key, int64_t step_id) {
    MutexLock lock(mutex_);
    if (!finished_) return;  // it was cancelled meanwhile
    options_.collective_graph_key = collective_graph_key;
    options_.step_id = step_id;
  }
  // Once, and nothing after it was cancelled.
  void Start(absl::StatusOr<std::shared_ptr<const ClusterPlan>> plan);
  // The step ends with `reason`, unless it has failed or ended by itself before.
  void Cancel(absl::Status reason);
  bool over() const {
    MutexLock lock(mutex_);
    return !finished_ || !cancelled_.ok();
  }

  // Whether it has done nothing but fill queues. Once it has finished.
  bool fills_queues() const { return plan_ != nullptr && plan_->fills_queues; }

  // Whether tasks may be done with their parts before the step is over: it has several, or its plan
  // is still being made.
  bool MayLeaveTasksBehind() const;
  // The tasks that have done their part while others still run theirs; none at the first call,
  // since most steps are over before the second.
  std::vector<std::string> TakeTasksBehind();
  // What a task kept, whose part is over, is lost. The step ends with `why`, unless it has failed
  // before or the task has no such part.
  void LoseTask(const std::string& task, const absl::Status& why);

 private:
  struct Failure {
    std::string task;
    absl::Status status;
  };

  ClusterStep(Scheduler& scheduler, ClusterStepOptions options, Finished finished)
      : scheduler_(scheduler), options_(std::move(options)), finished_(std::move(finished)) {}
  absl::Status CheckFeeds() const;
  RunGraphRequest Request(size_t part);
  void Answer(size_t part, absl::StatusOr<RunGraphReply> reply);
  // Notes a root error. The reason with which the other parts are to be cancelled; OK: none runs.
  absl::Status FailLocked(size_t part, absl::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsBehindLocked(size_t part) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return replies_[part].has_value() && static_cast<int>(part) != plan_->client_part;
  }
  void AllAnswered();
  void FetchLogs();
  void Logging(bool enable);
  // Workers forget the step: at once where it failed.
  void CleanUp(bool failed);
  absl::StatusOr<StepResult> Collect();
  void Finish(absl::StatusOr<StepResult> result);

  Scheduler& scheduler_;
  ClusterStepOptions options_;
  std::shared_ptr<const ClusterPlan> plan_;
  const std::shared_ptr<Cancellation> calls_ = std::make_shared<Cancellation>();

  mutable Mutex mutex_;
  bool started_ ABSL_GUARDED_BY(mutex_) = false;
  Finished finished_ ABSL_GUARDED_BY(mutex_);
  std::optional<Scheduler::TimerId> timer_ ABSL_GUARDED_BY(mutex_);
  absl::Status cancelled_ ABSL_GUARDED_BY(mutex_);  // by the client, the session or the timer
  size_t left_ ABSL_GUARDED_BY(mutex_) = 0;
  // In the order in which they came.
  std::vector<Failure> roots_ ABSL_GUARDED_BY(mutex_);
  std::optional<Failure> derived_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::optional<RunGraphReply>> replies_ ABSL_GUARDED_BY(mutex_);
  bool lasts_ ABSL_GUARDED_BY(mutex_) = false;  // TakeTasksBehind has been called before
  std::vector<std::string> logs_ ABSL_GUARDED_BY(mutex_);
  CancelCallback on_cancel_;  // of the caller
};

// The error of a step that failed on these tasks.
absl::Status CombineErrors(const std::vector<std::pair<std::string, absl::Status>>& roots);

}  // namespace muster
