// One RunGraph call: values in, executors, values out.
#pragma once

#include <memory>

#include "muster/worker/step_table.h"

namespace muster {

class GraphRun : public std::enable_shared_from_this<GraphRun> {
 public:
  struct Options {
    RunGraphRequest request;
    CallDone<RunGraphReply> done;
    std::shared_ptr<Execution> execution;
    bool starts_execution = true;  // false: a later part of a partial run
    std::shared_ptr<WorkerStep> step;
    std::shared_ptr<StepTable> steps;
    std::shared_ptr<Cancellation> caller;  // may be null
    absl::Duration cancel_grace;
    Scheduler* scheduler = nullptr;
  };
  explicit GraphRun(Options options) : options_(std::move(options)) {}

  // The call is answered once, after StepTable::EndRun.
  void Start();

 private:
  void RegisterWithCaller();
  void RunWhole();
  void RunPart();
  // Takes the tensors out under the request's keys.
  using Received = absl::AnyInvocable<void(absl::StatusOr<std::vector<NamedTensor>>) &&>;
  void Receive(Received done);
  void AnswerWhole(absl::StatusOr<std::vector<NamedTensor>> tensors);
  void Answer(absl::StatusOr<RunGraphReply> reply);

  Options options_;
  Cancellation::Token token_ = 0;
};

}  // namespace muster
