#include "muster/worker/execution.h"

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
}

void Execution::Start() {
  step_.scheduler->Schedule([self = shared_from_this()] {
    self->graph_->partitions->Run(self->step_, [self](absl::Status status) mutable {
      self->Ended(std::move(status));
      // The executor that calls this must not go with the last reference.
      Scheduler& scheduler = *self->step_.scheduler;
      scheduler.Schedule([last = std::move(self)] {});
    });
  });
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
