// One graph of a step under way on this task.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "muster/runtime/step_collectives.h"
#include "muster/runtime/trace.h"
#include "muster/worker/remote_rendezvous.h"
#include "muster/worker/worker_session.h"

namespace muster {

// Thread-safe.
class Execution : public std::enable_shared_from_this<Execution> {
 public:
  using Listener = absl::AnyInvocable<void(absl::Status) &&>;

  Execution(int64_t step_id, std::shared_ptr<WorkerSession> session,
            std::shared_ptr<RegisteredGraph> graph, std::shared_ptr<RemoteRendezvous> rendezvous,
            Scheduler& scheduler, bool traced);

  const std::shared_ptr<Cancellation> cancellation = std::make_shared<Cancellation>();

  // For a graph that has collectives. Before Start.
  void UseCollectives(RefPtr<StepCollectives> collectives);

  // Starts the executors, on the scheduler unless they take hardly any time. Once.
  void Start();
  // Called when all executors have ended, at once if they have: with the error that came first.
  void WhenDone(Listener listener);
  // Kernels are told, receives end at once, and after `grace` everything else that waits for the
  // step.
  void Cancel(absl::Duration grace, Scheduler& control);

  RemoteRendezvous& rendezvous() { return *rendezvous_; }
  RegisteredGraph& graph() { return *graph_; }
  std::vector<NodeTrace> TakeTraces() { return trace_.Take(); }

 private:
  void Run();
  void Ended(absl::Status status);

  const std::shared_ptr<WorkerSession> session_;
  const std::shared_ptr<RegisteredGraph> graph_;
  const std::shared_ptr<RemoteRendezvous> rendezvous_;
  ResourceManager step_resources_{"step"};
  RefPtr<StepCollectives> collectives_;
  StepTrace trace_;
  Step step_;
  std::atomic<std::thread::id> running_in_;  // the thread that is inside of Run
  Mutex mutex_;
  std::optional<absl::Status> ended_ ABSL_GUARDED_BY(mutex_);
  std::vector<Listener> listeners_ ABSL_GUARDED_BY(mutex_);
};

// After `grace` whoever waits at the rendezvous of a cancelled step is let go.
void AbortAfter(absl::Duration grace, int64_t step_id, std::weak_ptr<RemoteRendezvous> rendezvous,
                Scheduler& scheduler);

}  // namespace muster
