// One RunGraph call for a step: values in, the graph or a part of its run, values out.
#pragma once

#include <memory>

#include "muster/base/cancel_callback.h"
#include "muster/worker/worker_step.h"

namespace muster {

class RunGraphCall : public std::enable_shared_from_this<RunGraphCall> {
 public:
  struct Options {
    RunGraphRequest request;
    CallDone<RunGraphReply> done;
    std::shared_ptr<WorkerStep> step;
    bool starts_step = true;  // false: a later part of a partial run
    std::shared_ptr<StepTable> steps;
    std::shared_ptr<Cancellation> caller;  // may be null
    absl::Duration cancel_grace;
    Scheduler* control = nullptr;
  };
  explicit RunGraphCall(Options options) : options_(std::move(options)) {}

  // The call is answered once, after StepTable::EndRun.
  void Start();

 private:
  void RunWhole();
  void RunPart();
  // Takes the tensors out under the request's keys.
  using Received = absl::AnyInvocable<void(absl::StatusOr<std::vector<NamedTensor>>) &&>;
  void Receive(Received done);
  void AnswerWhole(absl::StatusOr<std::vector<NamedTensor>> tensors);
  void Answer(absl::StatusOr<RunGraphReply> reply);

  Options options_;
  CancelCallback on_cancel_;
};

}  // namespace muster
