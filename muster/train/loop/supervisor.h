// The older training loop: the program runs its own steps while services beside it save, summarize
// and count. Nothing is retried: the program has to be started again from outside.
//
//   ASSIGN_OR_RETURN(SupervisorOptions options, SupervisorWith(scaffold, model, factory, "logs"));
//   options.global_step = step.ref;
//   const auto supervisor = Supervisor::Create(std::move(options));
//   return supervisor->RunManaged([&](Session& session) -> absl::Status {
//     while (!supervisor->ShouldStop()) RETURN_IF_ERROR(session.Run({}, {}, {train}).status());
//     return absl::OkStatus();
//   });
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "muster/train/events/event_proto.h"
#include "muster/train/loop/coordinator.h"
#include "muster/train/loop/interruption.h"
#include "muster/train/loop/looper.h"
#include "muster/train/loop/session_manager.h"

namespace muster {

class EventWriter;
struct Model;
struct Scaffold;

// Where the events of a supervisor go.
class SupervisorEvents {
 public:
  using Step = std::optional<int64_t>;
  virtual ~SupervisorEvents() = default;
  virtual absl::Status AddSummary(const Tensor& summary, Step step) = 0;
  virtual absl::Status AddScalar(const std::string& tag, double value, Step step) = 0;
  virtual absl::Status AddSessionLog(SessionStatus status, const std::string& path, Step step) = 0;
  virtual absl::Status Reopen() = 0;
  virtual absl::Status Close() = 0;
};
std::shared_ptr<SupervisorEvents> EventsTo(std::shared_ptr<EventWriter> writer);

struct SupervisorOptions {
  // Only the chief initializes the model, saves and writes events.
  bool is_chief = true;
  std::string logdir;  // "": no services
  std::string checkpoint_basename = "model.ckpt";
  // Zero: never.
  absl::Duration save_summaries_every = absl::Seconds(120);
  absl::Duration save_model_every = absl::Seconds(600);
  absl::Duration stop_grace = absl::Seconds(120);
  Output summary_op;             // none: summaries are the program's business
  Output global_step;            // none: events and checkpoints have no step
  std::string global_step_name;  // in the events; "": the node's
  std::shared_ptr<SupervisorEvents> events;
  // Writes one checkpoint. Empty: no service saves.
  std::function<absl::Status(Session&, const std::string& path, std::optional<int64_t> step)> save;
  // Writes the graph to the folder and, when asked, to the events.
  std::function<absl::Status(Session&, bool with_events)> describe;
  // A session with the model ready: PrepareSession for the chief, WaitForSession for others.
  SessionFactory open;
  std::function<absl::Status(const std::shared_ptr<Session>&)> start_queue_runners;
  // Instead of StartStandardServices.
  std::function<absl::Status(const std::shared_ptr<Session>&)> start_services;
  std::shared_ptr<Coordinator> coordinator;  // null: one of its own
  // With that of CatchInterruptions (interruption.h) a signal ends the loop.
  Interrupted interrupted;
};

// Options for a scaffold that is final; sessions come from `factory`, and their steps ask
// `interrupted` if the factory gives it to them.
absl::StatusOr<SupervisorOptions> SupervisorWith(std::shared_ptr<const Scaffold> scaffold,
                                                 const Model& model, SessionFactory factory,
                                                 std::string logdir, bool is_chief = true,
                                                 Interrupted interrupted = {});

// Thread-safe, except that sessions are prepared and stopped by one thread. Its threads keep it.
class Supervisor : public std::enable_shared_from_this<Supervisor> {
 public:
  static std::shared_ptr<Supervisor> Create(SupervisorOptions options);

  // Opens a session and starts what belongs to it.
  absl::StatusOr<std::shared_ptr<Session>> PrepareOrWaitForSession(
      bool start_standard_services = true) {
    return PrepareOrWaitForSession(options_.open, start_standard_services);
  }
  absl::StatusOr<std::shared_ptr<Session>> PrepareOrWaitForSession(const SessionFactory& open,
                                                                   bool start_standard_services);

  // Something that is done again and again beside training.
  struct Service {
    std::string name;
    absl::Duration every;
    LoopCalls calls;
  };
  // The services of the chief: summaries, the speed, checkpoints; the first ones at once. Marks the
  // start in the events. FailedPrecondition (a RuntimeError) for others than the chief; nothing,
  // and a warning, without a folder.
  absl::StatusOr<std::vector<Service>> Services(const std::shared_ptr<Session>& session);
  absl::StatusOr<std::vector<std::shared_ptr<Thread>>> StartStandardServices(
      const std::shared_ptr<Session>& session);
  std::shared_ptr<Thread> Loop(std::optional<absl::Duration> interval,
                               std::function<absl::Status()> call);

  // Ends all threads and the events. The session stays open; no checkpoint is written. What a
  // thread failed with comes out here.
  struct StopOptions {
    std::vector<std::shared_ptr<Joinable>> threads;
    bool close_events = true;
    bool ignore_live_threads = false;
    std::optional<absl::Duration> grace = std::nullopt;  // none: the supervisor's
  };
  absl::Status Stop(StopOptions options);
  absl::Status Stop() { return Stop(StopOptions()); }
  // Prepares a session, calls `body` and stops; the end of the input is not an error. After an
  // interruption the chief saves first, and the error says so.
  absl::Status RunManaged(const std::function<absl::Status(Session&)>& body);

  // A summary that the program has made. Without a step it gets the current one.
  absl::Status SummaryComputed(Session& session, const Tensor& summary,
                               std::optional<int64_t> step = std::nullopt);
  bool ShouldStop() const {
    return coordinator_->ShouldStop() || !InterruptionOf({}, options_.interrupted).ok();
  }
  absl::Status RequestStop(absl::Status why = absl::OkStatus()) {
    return coordinator_->RequestStop(std::move(why));
  }
  const std::shared_ptr<Coordinator>& coordinator() const { return coordinator_; }
  // "<logdir>/<basename>"; "" where nothing is saved.
  const std::string& save_path() const { return save_path_; }

 private:
  explicit Supervisor(SupervisorOptions options);
  bool has_step() const { return options_.global_step.node != nullptr; }
  absl::StatusOr<int64_t> StepOf(Session& session) const;
  absl::Status RecordSummary(Session& session);
  Service StepCounter(const std::shared_ptr<Session>& session);
  // The path of the checkpoint.
  absl::StatusOr<std::string> SaveCheckpoint(Session& session);
  absl::StatusOr<std::vector<std::string>> StopInterrupted(Session& session);

  const SupervisorOptions options_;
  const std::shared_ptr<Coordinator> coordinator_;
  const std::string save_path_;
  bool graph_in_events_ = false;
};

}  // namespace muster
