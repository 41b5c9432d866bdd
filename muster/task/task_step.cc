#include "muster/task/task_step.h"

#include "muster/base/check.h"

namespace muster {

TaskStep::TaskStep(int64_t id, std::shared_ptr<Rendezvous> rendezvous)
    : rendezvous_(std::move(rendezvous)) {
  step_.id = id;
  step_.rendezvous = rendezvous_.get();
  step_.cancellation = cancellation_.get();
  step_.step_resources = &step_resources_;
}

void TaskStep::Begin(std::shared_ptr<TaskSession> session, std::shared_ptr<TaskGraph> graph) {
  session_ = std::move(session);
  graph_ = std::move(graph);
  step_.resources = &session_->resources();
  step_.scheduler = &session_->scheduler();
  step_.functions = graph_->functions.get();
  step_.frame_ids = graph_->frame_ids;
  step_.caller = session_->owner();
}

void TaskStep::Use(RefPtr<StepCollectives> collectives) {
  collectives_ = std::move(collectives);
  const absl::Status added =
      step_resources_.Create("", CollectiveExecutor::kStepName, collectives_);
  CHECK(added.ok());
}

void TaskStep::AbortRendezvousWhenCancelled() {
  // Receivers that hear of it may end the step: the callback keeps the rendezvous.
  on_cancel_.emplace().Start(cancellation_, [rendezvous = rendezvous_](const absl::Status& reason) {
    rendezvous->Abort(reason);
  });
}

void TaskStep::Run(Done done) {
  done_ = std::move(done);
  graph_->partitions->Run(step_, [this](absl::Status status) {
    result_ = std::move(status);
    AwaitStreams();
  });
}

// Captures nothing but the step: such a callback takes no memory, and every step has one.
void TaskStep::AwaitStreams() {
  if (next_stream_ == graph_->streams.size()) return End(std::move(result_));
  graph_->streams[next_stream_++]->WhenDone([this](absl::Status streamed) {
    if (result_.ok()) result_ = std::move(streamed);
    AwaitStreams();
  });
}

void TaskStep::End(absl::Status status) {
  // The first error is the cause of the others.
  if (!status.ok() && cancellation_->cancelled()) status = cancellation_->reason();
  step_resources_.Clear();
  // Other ranks that wait for this one must hear of it.
  if (!status.ok() && collectives_) collectives_->exchange().Abort(status);
  Done done = std::move(done_);
  std::move(done)(std::move(status));  // the step may be gone now
}

}  // namespace muster
