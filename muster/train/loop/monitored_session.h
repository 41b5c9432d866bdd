// The session of a training loop: creates and initializes itself, calls hooks around every run,
// starts over when a task of the cluster was lost, and saves and closes in the right order.
//
//   MonitoredTrainingSessionOptions options;
//   options.checkpoint_dir = "model";
//   ASSIGN_OR_RETURN(auto session, MonitoredTrainingSession(std::move(options)));
//   while (!session->ShouldStop()) RETURN_IF_ERROR(session->Run(feeds, {loss}, {train}).status());
//   RETURN_IF_ERROR(session->Close());
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/time/time.h"

#include "muster/base/status.h"
#include "muster/client/session.h"
#include "muster/train/hooks/hook.h"
#include "muster/train/loop/timer.h"

namespace muster {

// Makes a session in which the model is ready.
class SessionCreator {
 public:
  virtual ~SessionCreator() = default;
  virtual absl::StatusOr<std::shared_ptr<Session>> CreateSession() = 0;
};

struct MonitoredSessionOptions {
  std::vector<std::shared_ptr<SessionRunHook>> hooks;
  // How long closing waits for threads of the coordinator.
  absl::Duration stop_grace_period = absl::Seconds(120);
  // Aborted and Unavailable make a new session and run the same step again. Without it they reach
  // the caller (TensorFlow's SingularMonitoredSession).
  bool recover = true;
  // Gives every session's coordinator; empty: one to which no error is a clean end.
  std::function<absl::StatusOr<std::shared_ptr<Coordinator>>()> new_coordinator;
  // Starts what feeds the model, after every creation.
  std::function<absl::Status(const std::shared_ptr<Session>&, const std::shared_ptr<Coordinator>&)>
      start_queue_runners;
  // Between two failed creations, so that a cluster that is down is not asked without pause.
  absl::Duration creation_pause = absl::Milliseconds(50);
  Interrupted interrupted;
  Timer* timer = nullptr;  // null: real time
};

// What a function run by MonitoredSession::RunStep works with.
class StepContext {
 public:
  using RunFunction =
      std::function<absl::StatusOr<std::vector<Tensor>>(const RunArgs&, RunMetadata*)>;
  StepContext(Session& session, RunFunction run) : session_(session), run_(std::move(run)) {}
  // Runs on it reach no hook.
  Session& session() const { return session_; }
  absl::StatusOr<std::vector<Tensor>> RunWithHooks(const RunArgs& args,
                                                   RunMetadata* metadata = nullptr) const {
    return run_(args, metadata);
  }
  // What a step returns to end the loop: OutOfRange, which closes cleanly.
  absl::Status RequestStop() const {
    return OutOfRange("step_fn has requested the iterations to stop.");
  }

 private:
  Session& session_;
  RunFunction run_;
};

// One thread at a time.
class MonitoredSession {
 public:
  // Calls Begin of the hooks and creates the first session.
  static absl::StatusOr<std::unique_ptr<MonitoredSession>> Create(
      std::shared_ptr<SessionCreator> creator, MonitoredSessionOptions options = {});
  // Ends the session without waiting, unless it was closed.
  ~MonitoredSession();

  // One step with what hooks add to it. A session that recovers runs it again, with the same feeds,
  // after Aborted and Unavailable, as often as it takes: parts of a step may happen more than once.
  absl::StatusOr<std::vector<Tensor>> Run(const RunArgs& args, RunMetadata* metadata = nullptr);
  absl::StatusOr<std::vector<Tensor>> Run(std::vector<std::pair<Output, Tensor>> feeds,
                                          std::vector<Output> fetches,
                                          std::vector<Node*> targets = {});
  // Calls `step`, again where Run would run again; it may run on the session as it likes.
  absl::Status RunStep(const std::function<absl::Status(StepContext&)>& step);

  // Whether the loop should end: a hook or the coordinator asked for it, or a thread failed. A
  // failure that Run would recover from is recovered from here. True for a closed session, and when
  // that is not known: Close reports why.
  bool ShouldStop();
  // The same for callers that take the error at once.
  absl::StatusOr<bool> CheckStop();
  // Ends the hooks, stops the threads and closes. What a thread has failed with comes out here.
  absl::Status Close() { return CloseAfter(absl::OkStatus()); }
  // The same after the loop ended with `error`: unless that is OutOfRange (input at its end) hooks
  // are not ended, so that nothing is saved. Gives the error that the caller should report. A loop
  // that was interrupted (see interruption.h) is closed as by CloseInterrupted, and the error says
  // what was saved.
  absl::Status CloseAfter(const absl::Status& error);
  // Without ending the hooks.
  absl::Status CloseAfterError() { return CloseWith(/*clean=*/false); }

  // After an interruption: the hooks save what would be lost, and threads have little time to end.
  // What was saved, in a few words each.
  absl::StatusOr<std::vector<std::string>> CloseInterrupted();

  bool closed() const { return closed_; }
  // Null when closed. Runs on it reach no hook; it changes when the session recovers.
  std::shared_ptr<Session> raw_session() const;
  std::shared_ptr<Coordinator> coordinator() const;

 private:
  class Coordinated;
  MonitoredSession(std::shared_ptr<SessionCreator> creator, MonitoredSessionOptions options);
  absl::StatusOr<std::shared_ptr<Coordinator>> NewCoordinator() const;
  absl::Status CreateOnce();
  absl::Status CreateUntilDone();
  absl::Status Recover(const absl::Status& cause, absl::string_view when);
  absl::Status CloseCurrent(absl::Duration grace);
  absl::Status FailureAfter(const absl::Status& error) const;
  absl::Status CloseWith(bool clean);
  absl::StatusOr<std::vector<std::string>> SaveAndClose();

  const std::shared_ptr<SessionCreator> creator_;
  const MonitoredSessionOptions options_;
  std::unique_ptr<Coordinated> current_;
  bool closed_ = false;
  absl::Status failure_;  // that ShouldStop has met
};

// Aborted and Unavailable: a task was lost, another try may succeed.
bool IsPreemption(const absl::Status& status);

}  // namespace muster
