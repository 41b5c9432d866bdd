#include "muster/worker/execution.h"

#include "muster/base/attention.h"
#include "muster/base/turn.h"

namespace muster {

void AbortAfter(absl::Duration grace, int64_t step_id, std::weak_ptr<RemoteRendezvous> rendezvous,
                Scheduler& scheduler) {
  scheduler.ScheduleAfter(grace, [step_id, weak = std::move(rendezvous)] {
    if (const auto alive = weak.lock()) {
      alive->Abort(absl::AbortedError(
          absl::StrCat("Step ", step_id, " cancelled.  Cancelling rendezvous.")));
    }
  });
}

Execution::Execution(int64_t step_id, std::shared_ptr<WorkerSession> session,
                     std::shared_ptr<RegisteredGraph> graph,
                     std::shared_ptr<RemoteRendezvous> rendezvous, Scheduler& scheduler,
                     bool traced)
    : session_(std::move(session)), graph_(std::move(graph)), rendezvous_(std::move(rendezvous)) {
  step_.id = step_id;
  step_.rendezvous = rendezvous_.get();
  step_.cancellation = cancellation.get();
  step_.resources = &session_->resources();
  step_.step_resources = &step_resources_;
  step_.scheduler = &scheduler;
  step_.trace = traced ? &trace_ : nullptr;
  step_.frame_ids = graph_->frame_ids;
  step_.functions = graph_->functions.get();
}

void Execution::UseCollectives(RefPtr<StepCollectives> collectives) {
  collectives_ = std::move(collectives);
  const absl::Status added =
      step_resources_.Create("", CollectiveExecutor::kStepName, collectives_);
  CHECK(added.ok());
}

void Execution::Start() {
  if (graph_->partitions->is_brief()) return Run();
  if (graph_->partitions->is_short() && Attention::IsHeld() && !Turn::HasPutOff()) {
    return Turn::AtEnd([self = shared_from_this()] {
      Attention::LetGo();
      self->Run();
    });
  }
  step_.scheduler->Schedule([self = shared_from_this()] { self->Run(); });
}

void Execution::Run() {
  const auto alive = shared_from_this();
  running_in_ = std::this_thread::get_id();
  graph_->partitions->Run(step_, [self = shared_from_this()](absl::Status status) mutable {
    self->Ended(std::move(status));
    if (self->running_in_.load() == std::this_thread::get_id()) return;
    // The executor and the rendezvous that lead here must not go with the last reference.
    if (Attention::Keep(self)) return;
    Scheduler& scheduler = *self->step_.scheduler;
    scheduler.Schedule([last = std::move(self)] {});
  });
  running_in_ = std::thread::id();
}

void Execution::WhenDone(Listener listener) {
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

void Execution::Ended(absl::Status status) {
  // What came first is why the others stopped.
  if (!status.ok() && cancellation->cancelled()) status = cancellation->reason();
  step_resources_.Clear();
  // Other ranks that wait for this one must hear of it.
  if (!status.ok() && collectives_) collectives_->exchange().Abort(status);
  std::vector<Listener> listeners;
  {
    MutexLock lock(mutex_);
    ended_ = status;
    listeners.swap(listeners_);
  }
  for (Listener& listener : listeners) std::move(listener)(status);
}

void Execution::Cancel(absl::Duration grace, Scheduler& control) {
  const absl::Status reason = Derived(absl::CancelledError("RecvAsync is cancelled."));
  cancellation->Cancel(reason);
  rendezvous_->CancelReceives(reason);
  AbortAfter(grace, step_.id, rendezvous_, control);
}

}  // namespace muster
