#include "muster/worker/step_table.h"

#include "muster/base/in_order.h"

namespace muster {
namespace {

absl::Status CleanedUp(int64_t id) {
  return Derived(absl::AbortedError(absl::StrCat("Cleanup ", id)));
}

}  // namespace

std::shared_ptr<WorkerStep> StepTable::AddLocked(int64_t id) {
  auto step = std::make_shared<WorkerStep>(id);
  step->rendezvous = std::make_shared<RemoteRendezvous>(id, scheduler_, log_);
  steps_.emplace(id, step);
  return step;
}

absl::StatusOr<std::shared_ptr<WorkerStep>> StepTable::ForReceive(int64_t id, int64_t count) {
  MutexLock lock(mutex_);
  const auto found = steps_.find(id);
  if (found != steps_.end() && found->second->session != nullptr) return found->second;
  if (found == steps_.end() && finished_.Contains(id)) return CleanedUp(id);
  RETURN_IF_ERROR(TooManyEarlyLocked(count));
  return AddEarlyLocked(id, count);
}

absl::Status StepTable::TooManyEarlyLocked(int64_t count) const {
  if (early_receives_ <= kMaxEarlyReceives - count) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("More than ", kMaxEarlyReceives,
                   " RecvTensor calls wait for steps that have not started on this task"));
}

std::shared_ptr<WorkerStep> StepTable::AddEarlyLocked(int64_t id, int64_t count) {
  const auto found = steps_.find(id);
  std::shared_ptr<WorkerStep> step = found == steps_.end() ? AddLocked(id) : found->second;
  early_receives_ += count;
  step->early_receives += count;
  return step;
}

absl::StatusOr<std::shared_ptr<WorkerStep>> StepTable::ForBuffer(int64_t id) {
  MutexLock lock(mutex_);
  const auto failed = failed_.find(id);
  if (failed != failed_.end()) return failed->second;
  const auto found = steps_.find(id);
  if (found != steps_.end() && found->second->session != nullptr) return found->second;
  RETURN_IF_ERROR(TooManyEarlyLocked(1));
  return AddEarlyLocked(id, 1);
}

void StepTable::Failed(int64_t id, const absl::Status& status) {
  MutexLock lock(mutex_);
  if (!failed_.insert_or_assign(id, Derived(status)).second) return;
  failed_order_.push_back(id);
  if (failed_order_.size() <= kFailedSteps) return;
  failed_.erase(failed_order_.front());
  failed_order_.pop_front();
}

bool StepTable::ReceiveStopped(const std::shared_ptr<WorkerStep>& step, int64_t count) {
  MutexLock lock(mutex_);
  if (step->session != nullptr) return true;
  if (step->early_receives == 0) return false;  // the step is over
  early_receives_ -= count;
  step->early_receives -= count;
  if (step->early_receives == 0) steps_.erase(step->id);
  return false;
}

absl::StatusOr<std::shared_ptr<WorkerStep>> StepTable::StartRun(
    int64_t id, std::shared_ptr<WorkerSession> session) {
  MutexLock lock(mutex_);
  const auto found = steps_.find(id);
  const std::shared_ptr<WorkerStep> step = found == steps_.end() ? AddLocked(id) : found->second;
  if (step->session != nullptr && step->session != session)
    return Internal("Step ", id, " runs in another session of this worker");
  finished_.Erase(id);
  failed_.erase(id);
  ForgetEarlyLocked(*step);
  step->session = std::move(session);
  ++step->running;
  ++running_;
  if (step->idle_since != 0) idle_.erase(step->idle_since);
  step->idle_since = 0;
  return step;
}

void StepTable::EndRun(const std::shared_ptr<WorkerStep>& step) {
  std::shared_ptr<WorkerStep> oldest;
  {
    MutexLock lock(mutex_);
    --running_;
    if (--step->running > 0) return;
    const auto found = steps_.find(step->id);
    if (found == steps_.end() || found->second != step) return;
    step->idle_since = ++last_idle_;
    idle_.emplace(step->idle_since, step);
    if (idle_.size() <= kMaxIdleSteps) return;
    oldest = idle_.begin()->second;
  }
  Finish(oldest->id);
}

void StepTable::AddExecution(WorkerStep& step, const std::shared_ptr<Execution>& execution) {
  MutexLock lock(mutex_);
  step.executions.push_back(execution);
}

StepTable::Partial StepTable::PartialRun(WorkerStep& step,
                                         absl::FunctionRef<std::shared_ptr<Execution>()> make) {
  MutexLock lock(mutex_);
  if (step.partial != nullptr) return {step.partial, false};
  step.partial = make();
  step.executions.push_back(step.partial);
  return {step.partial, true};
}

void StepTable::Finish(int64_t id) {
  std::shared_ptr<WorkerStep> step;
  {
    MutexLock lock(mutex_);
    finished_.Insert(id);
    const auto found = steps_.find(id);
    if (found == steps_.end()) return;
    step = std::move(found->second);
    steps_.erase(found);
    ForgetEarlyLocked(*step);
    if (step->idle_since != 0) idle_.erase(step->idle_since);
    step->idle_since = 0;
  }
  step->rendezvous->Abort(CleanedUp(id));
  step->buffers->Abort(CleanedUp(id));
}

std::vector<int64_t> StepTable::Idle(const WorkerSession* session) const {
  std::vector<int64_t> ids;
  MutexLock lock(mutex_);
  for (const auto& [since, step] : idle_)
    if (step->session.get() == session) ids.push_back(step->id);
  return ids;
}

void StepTable::Stop(const WorkerSession* session, const absl::Status& reason) {
  std::vector<std::shared_ptr<WorkerStep>> steps;
  std::vector<std::shared_ptr<Execution>> executions;
  {
    MutexLock lock(mutex_);
    for (const auto* entry : InOrder(steps_)) {
      const std::shared_ptr<WorkerStep>& step = entry->second;
      if (session != nullptr && step->session.get() != session) continue;
      steps.push_back(step);
      for (const auto& weak : step->executions) {
        if (auto execution = weak.lock()) executions.push_back(std::move(execution));
      }
    }
  }
  for (const auto& execution : executions) execution->cancellation->Cancel(reason);
  for (const auto& step : steps) {
    step->rendezvous->Abort(reason);
    step->buffers->Abort(Derived(reason));
  }
}

int64_t StepTable::num_running() const {
  MutexLock lock(mutex_);
  return running_;
}

}  // namespace muster
