#include "muster/worker/worker_step.h"

#include "muster/base/in_order.h"
#include "muster/base/threads/waiting_thread.h"

namespace muster {
namespace {

absl::Status CleanedUp(int64_t id) {
  return Derived(absl::AbortedError(absl::StrCat("Cleanup ", id)));
}

}  // namespace

void WorkerStep::Start() {
  if (graph().partitions->is_brief()) return RunHere();
  WaitingThread& thread = WaitingThread::Current();
  if (graph().partitions->is_short() && thread.has_duty() && !thread.has_deferred()) {
    return thread.AtEndOfTurn([self = shared_from_this()] {
      WaitingThread::Current().HandOver();
      self->RunHere();
    });
  }
  scheduler().Schedule([self = shared_from_this()] { self->RunHere(); });
}

void WorkerStep::RunHere() {
  const auto alive = shared_from_this();
  running_in_ = std::this_thread::get_id();
  Run([self = shared_from_this()](const absl::Status& status) mutable {
    self->Ended(status);
    if (self->running_in_.load() == std::this_thread::get_id()) return;
    // The executor and the rendezvous that lead here must not go with the last reference.
    if (WaitingThread::Current().Keep(self)) return;
    Scheduler& scheduler = self->scheduler();
    scheduler.Schedule([last = std::move(self)] {});
  });
  running_in_ = std::thread::id();
}

void WorkerStep::WhenDone(Listener listener) {
  absl::Status status;
  {
    MutexLock lock(mutex_);
    if (!ended_) {
      listeners_.push_back(std::move(listener));
      return;
    }
    status = *ended_;
  }
  std::move(listener)(std::move(status));
}

void WorkerStep::Ended(const absl::Status& status) {
  std::vector<Listener> listeners;
  {
    MutexLock lock(mutex_);
    ended_ = status;
    listeners.swap(listeners_);
  }
  for (Listener& listener : listeners) std::move(listener)(status);
}

std::shared_ptr<CollectiveBuffers> WorkerStep::buffers() {
  MutexLock lock(mutex_);
  if (buffers_ == nullptr) {
    buffers_ = std::make_shared<CollectiveBuffers>();
    if (!aborted_.ok()) buffers_->Abort(aborted_);
  }
  return buffers_;
}

void WorkerStep::Abort(const absl::Status& reason) {
  std::shared_ptr<CollectiveBuffers> buffers;
  {
    MutexLock lock(mutex_);
    if (aborted_.ok()) aborted_ = Derived(reason);
    buffers = buffers_;
  }
  rendezvous->Abort(reason);
  if (buffers != nullptr) buffers->Abort(Derived(reason));
}

void WorkerStep::Cancel(absl::Duration grace, Scheduler& control) {
  const absl::Status reason = Derived(absl::CancelledError("RecvAsync is cancelled."));
  cancellation()->Cancel(reason);
  rendezvous->CancelReceives(reason);
  AbortAfter(grace, control);
}

void WorkerStep::AbortAfter(absl::Duration grace, Scheduler& control) {
  control.ScheduleAfter(grace, [weak = weak_from_this()] {
    if (const auto step = weak.lock()) {
      step->rendezvous->Abort(absl::AbortedError(
          absl::StrCat("Step ", step->id(), " cancelled.  Cancelling rendezvous.")));
    }
  });
}

// --- The table

std::shared_ptr<WorkerStep> StepTable::AddLocked(int64_t id) {
  auto step =
      std::make_shared<WorkerStep>(id, std::make_shared<RemoteRendezvous>(id, scheduler_, log_));
  steps_.emplace(id, step);
  return step;
}

absl::StatusOr<std::shared_ptr<WorkerStep>> StepTable::ForReceive(int64_t id, int64_t count) {
  MutexLock lock(mutex_);
  const auto found = steps_.find(id);
  if (found != steps_.end() && found->second->session_ != nullptr) return found->second;
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
  step->early_receives_ += count;
  return step;
}

absl::StatusOr<std::shared_ptr<WorkerStep>> StepTable::ForBuffer(int64_t id) {
  MutexLock lock(mutex_);
  const auto failed = failed_.find(id);
  if (failed != failed_.end()) return failed->second;
  const auto found = steps_.find(id);
  if (found != steps_.end() && found->second->session_ != nullptr) return found->second;
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
  if (step->session_ != nullptr) return true;
  if (step->early_receives_ == 0) return false;  // the step is over
  early_receives_ -= count;
  step->early_receives_ -= count;
  if (step->early_receives_ == 0) steps_.erase(step->id());
  return false;
}

absl::StatusOr<StepTable::Started> StepTable::StartRun(int64_t id,
                                                       std::shared_ptr<WorkerSession> session,
                                                       bool is_partial,
                                                       absl::FunctionRef<void(WorkerStep&)> begin) {
  MutexLock lock(mutex_);
  const auto found = steps_.find(id);
  const std::shared_ptr<WorkerStep> step = found == steps_.end() ? AddLocked(id) : found->second;
  const bool is_first = step->session_ == nullptr;
  if (!is_first && step->session_ != session)
    return Internal("Step ", id, " runs in another session of this worker");
  if (!is_first && !(is_partial && step->is_partial_))
    return Internal("Step ", id, " has run a graph on this worker already");
  finished_.Erase(id);
  failed_.erase(id);
  ForgetEarlyLocked(*step);
  ++step->running_calls_;
  ++running_;
  if (step->idle_since_ != 0) idle_.erase(step->idle_since_);
  step->idle_since_ = 0;
  if (is_first) {
    step->session_ = std::move(session);
    step->is_partial_ = is_partial;
    begin(*step);
  }
  return Started{step, is_first};
}

void StepTable::EndRun(const std::shared_ptr<WorkerStep>& step) {
  std::shared_ptr<WorkerStep> oldest;
  {
    MutexLock lock(mutex_);
    --running_;
    if (--step->running_calls_ > 0) return;
    const auto found = steps_.find(step->id());
    if (found == steps_.end() || found->second != step) return;
    step->idle_since_ = ++last_idle_;
    idle_.emplace(step->idle_since_, step);
    if (idle_.size() <= kMaxIdleSteps) return;
    oldest = idle_.begin()->second;
  }
  Finish(oldest->id());
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
    if (step->idle_since_ != 0) idle_.erase(step->idle_since_);
    step->idle_since_ = 0;
  }
  step->Abort(CleanedUp(id));
}

std::vector<int64_t> StepTable::Idle(const WorkerSession* session) const {
  std::vector<int64_t> ids;
  MutexLock lock(mutex_);
  for (const auto& [since, step] : idle_)
    if (step->session_.get() == session) ids.push_back(step->id());
  return ids;
}

void StepTable::Stop(const WorkerSession* session, const absl::Status& reason) {
  std::vector<std::shared_ptr<WorkerStep>> steps;
  {
    MutexLock lock(mutex_);
    for (const auto* entry : InOrder(steps_)) {
      const std::shared_ptr<WorkerStep>& step = entry->second;
      if (session != nullptr && step->session_.get() != session) continue;
      steps.push_back(step);
    }
  }
  for (const auto& step : steps) step->cancellation()->Cancel(reason);
  for (const auto& step : steps) step->Abort(reason);
}

int64_t StepTable::num_running() const {
  MutexLock lock(mutex_);
  return running_;
}

}  // namespace muster
