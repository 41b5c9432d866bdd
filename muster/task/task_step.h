// One step under way on a task, and everything that it owns there.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "muster/base/cancel_callback.h"
#include "muster/collective/step/step_collectives.h"
#include "muster/runtime/step.h"
#include "muster/runtime/trace.h"
#include "muster/task/task_session.h"

namespace muster {

// Begin, then what the step needs besides, then Run; from one thread at a time. Other threads may
// cancel it and use its rendezvous at any time. Its address stays the same until `done`.
class TaskStep {
 public:
  // `rendezvous` is null where the graph has no transfers (LocalPartitions::has_transfers).
  TaskStep(int64_t id, std::shared_ptr<Rendezvous> rendezvous);
  TaskStep(const TaskStep&) = delete;
  TaskStep& operator=(const TaskStep&) = delete;

  // What it runs, and for which session.
  void Begin(std::shared_ptr<TaskSession> session, std::shared_ptr<TaskGraph> graph);
  // Values for _Arg and from _Retval nodes are handed over directly.
  void Use(CallFrame& frame) { step_.call_frame = &frame; }
  // For a graph that has collectives.
  void Use(RefPtr<StepCollectives> collectives);
  void RecordTrace() { step_.trace = &trace_; }
  // Whatever waits at the rendezvous ends at once when the step is cancelled.
  void AbortRendezvousWhenCancelled();

  // Runs the graph; see LocalPartitions::Run. The step ends when all nodes have run and the streams
  // of their devices have finished what the nodes put on them: until then the devices may read and
  // write the step's tensors. `done` gets why it ended: OK, the first error, or the reason for
  // which it was cancelled, when that came first.
  void Run(Done done);

  int64_t id() const { return step_.id; }
  Scheduler& scheduler() { return *step_.scheduler; }  // after Begin
  const TaskGraph& graph() const { return *graph_; }
  Rendezvous& rendezvous() { return *rendezvous_; }
  // Shared with what may cancel the step.
  const std::shared_ptr<Cancellation>& cancellation() const { return cancellation_; }
  // After the end.
  std::vector<NodeTrace> TakeTraces() { return trace_.Take(); }

 private:
  // Waits for the streams that are left, one after the other, then ends.
  void AwaitStreams();
  void End(absl::Status status);

  std::shared_ptr<TaskSession> session_;  // goes last: kernels use its devices and resources
  const std::shared_ptr<Rendezvous> rendezvous_;
  const std::shared_ptr<Cancellation> cancellation_ = std::make_shared<Cancellation>();
  std::shared_ptr<TaskGraph> graph_;
  ResourceManager step_resources_{"step"};
  RefPtr<StepCollectives> collectives_;
  StepTrace trace_;
  Step step_;
  Done done_;
  // While it waits for streams: how its nodes have ended, and the stream that is next.
  absl::Status result_;
  size_t next_stream_ = 0;
  std::optional<CancelCallback> on_cancel_;
};

}  // namespace muster
