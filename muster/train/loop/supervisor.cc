#include "muster/train/loop/supervisor.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"

#include "muster/checkpoint/file.h"
#include "muster/train/events/event_writer.h"
#include "muster/train/events/graph_text_proto.h"
#include "muster/train/loop/notice.h"
#include "muster/train/loop/queue_runner.h"
#include "muster/train/loop/scaffold.h"
#include "muster/train/model/global_step.h"

namespace muster {
namespace {

// The log has this many lines about the speed of training; later values are in the events only.
constexpr int kSpeedLines = 10;

std::string SavePath(const SupervisorOptions& options) {
  if (!options.is_chief || options.logdir.empty()) return "";
  const char* slash = absl::EndsWith(options.logdir, "/") ? "" : "/";
  return absl::StrCat(options.logdir, slash, options.checkpoint_basename);
}

class WriterEvents : public SupervisorEvents {
 public:
  explicit WriterEvents(std::shared_ptr<EventWriter> writer) : writer_(std::move(writer)) {}
  absl::Status AddSummary(const Tensor& summary, Step step) override {
    if (summary.dtype() != DType::kString || summary.num_elements() != 1) {
      return InvalidArgument("A summary is one serialized message, not ",
                             DTypeName(summary.dtype()), " of shape ", summary.shape().ToString());
    }
    return writer_->AddSummary(summary.scalar<std::string>(), step);
  }
  absl::Status AddScalar(const std::string& tag, double value, Step step) override {
    return writer_->AddScalar(tag, static_cast<float>(value), step);
  }
  absl::Status AddSessionLog(SessionStatus status, const std::string& path, Step step) override {
    return writer_->AddSessionLog(status, path, "", step);
  }
  absl::Status Reopen() override { return writer_->Reopen(); }
  absl::Status Close() override { return writer_->Close(); }

 private:
  const std::shared_ptr<EventWriter> writer_;
};

}  // namespace

std::shared_ptr<SupervisorEvents> EventsTo(std::shared_ptr<EventWriter> writer) {
  return std::make_shared<WriterEvents>(std::move(writer));
}

absl::StatusOr<SupervisorOptions> SupervisorWith(std::shared_ptr<const Scaffold> scaffold,
                                                 const Model& model, SessionFactory factory,
                                                 std::string logdir, bool is_chief,
                                                 Interrupted interrupted) {
  SupervisorOptions options;
  options.is_chief = is_chief;
  options.logdir = logdir;
  options.summary_op = scaffold->summary_op;
  options.interrupted = interrupted;
  auto coordinator = std::make_shared<Coordinator>();
  options.coordinator = coordinator;
  options.start_queue_runners = [runners = model.queue_runners,
                                 coordinator](const std::shared_ptr<Session>& session) {
    for (const auto& runner : runners) runner->Start(session, coordinator);
    return absl::OkStatus();
  };
  if (!is_chief) {
    ASSIGN_OR_RETURN(const std::shared_ptr<WorkerSessionCreator> creator,
                     WorkerSessionCreator::Create(*scaffold, std::move(factory), absl::Minutes(30),
                                                  std::move(interrupted)));
    options.open = [creator] { return creator->CreateSession(); };
    return options;
  }
  ASSIGN_OR_RETURN(const std::shared_ptr<ChiefSessionCreator> creator,
                   ChiefSessionCreator::Create(scaffold, std::move(factory), logdir, "",
                                               std::move(interrupted)));
  options.open = [creator] { return creator->CreateSession(); };
  if (logdir.empty()) return options;
  ASSIGN_OR_RETURN(std::shared_ptr<EventWriter> writer, EventWriter::Open(logdir));
  options.events = EventsTo(writer);
  options.save = [scaffold](Session& session, const std::string& path,
                            std::optional<int64_t> step) {
    SaveOptions save;
    save.meta_graph = [&] { return SerializeMetaGraph(session.graph(), scaffold->saver->def()); };
    return scaffold->saver->Save(session, path, step, save).status();
  };
  options.describe = [scaffold, logdir, writer](Session& session,
                                                bool with_events) -> absl::Status {
    ASSIGN_OR_RETURN(const std::string text, GraphText(session.graph()));
    RETURN_IF_ERROR(WriteFileAtomically(absl::StrCat(logdir, "/graph.pbtxt"), text));
    if (!with_events) return absl::OkStatus();
    ASSIGN_OR_RETURN(const std::string graph, SerializeGraphWithShapes(session.graph()));
    RETURN_IF_ERROR(writer->AddGraph(graph));
    ASSIGN_OR_RETURN(const std::string meta,
                     SerializeMetaGraph(session.graph(), scaffold->saver->def()));
    return writer->AddMetaGraph(meta);
  };
  return options;
}

std::shared_ptr<Supervisor> Supervisor::Create(SupervisorOptions options) {
  return std::shared_ptr<Supervisor>(new Supervisor(std::move(options)));
}

Supervisor::Supervisor(SupervisorOptions options)
    : options_(std::move(options)),
      coordinator_(options_.coordinator != nullptr ? options_.coordinator
                                                   : std::make_shared<Coordinator>()),
      save_path_(SavePath(options_)) {}

absl::StatusOr<std::shared_ptr<Session>> Supervisor::PrepareOrWaitForSession(
    const SessionFactory& open, bool start_standard_services) {
  // A program may prepare a session again after a stop.
  coordinator_->ClearStop();
  if (options_.events != nullptr) RETURN_IF_ERROR(options_.events->Reopen());
  ASSIGN_OR_RETURN(std::shared_ptr<Session> session, open());
  if (options_.is_chief) {
    if (options_.describe)
      RETURN_IF_ERROR(options_.describe(*session, options_.events != nullptr && !graph_in_events_));
    graph_in_events_ = true;
    if (start_standard_services) {
      NoticeInfo("Starting standard services.");
      RETURN_IF_ERROR(options_.start_services ? options_.start_services(session)
                                              : StartStandardServices(session).status());
    }
  }
  if (start_standard_services) {
    NoticeInfo("Starting queue runners.");
    if (options_.start_queue_runners) RETURN_IF_ERROR(options_.start_queue_runners(session));
  }
  return session;
}

// --- Services

absl::StatusOr<int64_t> Supervisor::StepOf(Session& session) const {
  ASSIGN_OR_RETURN(const std::vector<Tensor> values, session.Run({}, {options_.global_step}));
  return StepFromTensor(values[0]);
}

absl::StatusOr<std::vector<Supervisor::Service>> Supervisor::Services(
    const std::shared_ptr<Session>& session) {
  if (!options_.is_chief) {
    return RuntimeError(
        "Only chief supervisor can start standard services. Because only chief supervisors can "
        "write events.");
  }
  std::vector<Service> services;
  if (options_.logdir.empty()) {
    NoticeWarning("Standard services need a 'logdir' passed to the SessionManager");
    return services;
  }
  const bool has_events = options_.events != nullptr;
  // Without a step TensorBoard cannot tell what the start makes void.
  if (has_step() && has_events) {
    ASSIGN_OR_RETURN(const int64_t step, StepOf(*session));
    RETURN_IF_ERROR(options_.events->AddSessionLog(SessionStatus::kStart, "", step));
  }
  if (options_.save_summaries_every > absl::ZeroDuration() && has_events) {
    if (options_.summary_op.node != nullptr) {
      LoopCalls calls;
      calls.run = [self = shared_from_this(), session] { return self->RecordSummary(*session); };
      services.push_back({"SummaryThread", options_.save_summaries_every, std::move(calls)});
    }
    if (has_step()) services.push_back(StepCounter(session));
  }
  if (options_.save && options_.save_model_every > absl::ZeroDuration()) {
    LoopCalls calls;
    calls.run = [self = shared_from_this(), session] {
      return self->SaveCheckpoint(*session).status();
    };
    services.push_back({"CheckpointThread", options_.save_model_every, std::move(calls)});
  }
  return services;
}

absl::StatusOr<std::vector<std::shared_ptr<Thread>>> Supervisor::StartStandardServices(
    const std::shared_ptr<Session>& session) {
  ASSIGN_OR_RETURN(std::vector<Service> services, Services(session));
  std::vector<std::shared_ptr<Thread>> threads;
  for (Service& service : services) {
    threads.push_back(
        StartLooper(coordinator_, service.every, std::move(service.calls), service.name));
  }
  return threads;
}

absl::Status Supervisor::RecordSummary(Session& session) {
  std::vector<Output> fetches = {options_.summary_op};
  if (has_step()) fetches.push_back(options_.global_step);
  ASSIGN_OR_RETURN(const std::vector<Tensor> values, session.Run({}, fetches));
  std::optional<int64_t> step;
  if (has_step()) {
    ASSIGN_OR_RETURN(step, StepFromTensor(values[1]));
  }
  NoticeInfo("Recording summary at step ", step ? absl::StrCat(*step) : "None", ".");
  return options_.events->AddSummary(values[0], step);
}

Supervisor::Service Supervisor::StepCounter(const std::shared_ptr<Session>& session) {
  struct Last {
    absl::Duration time;
    int64_t step = 0;
    int lines = 0;
  };
  auto last = std::make_shared<Last>();
  const std::string tag =
      absl::StrCat(options_.global_step_name.empty() ? options_.global_step.node->name()
                                                     : options_.global_step_name,
                   "/sec");
  LoopCalls calls;
  calls.start = [self = shared_from_this(), session, last]() -> absl::Status {
    last->time = self->coordinator_->timer().Now();
    ASSIGN_OR_RETURN(last->step, self->StepOf(*session));
    return absl::OkStatus();
  };
  calls.run = [self = shared_from_this(), session, last, tag]() -> absl::Status {
    ASSIGN_OR_RETURN(const int64_t step, self->StepOf(*session));
    const absl::Duration now = self->coordinator_->timer().Now();
    const double speed = static_cast<double>(step - last->step) /
                         absl::ToDoubleSeconds(std::max(now - last->time, absl::Nanoseconds(1)));
    last->step = step;
    last->time = now;
    RETURN_IF_ERROR(self->options_.events->AddScalar(tag, speed, step));
    if (last->lines++ < kSpeedLines) NoticeInfo(absl::StrFormat("%s: %g", tag, speed));
    return absl::OkStatus();
  };
  return {"StepCounterThread", options_.save_summaries_every, std::move(calls)};
}

absl::StatusOr<std::string> Supervisor::SaveCheckpoint(Session& session) {
  NoticeInfo("Saving checkpoint to path ", save_path_);
  std::optional<int64_t> step;
  if (has_step()) {
    ASSIGN_OR_RETURN(step, StepOf(session));
  }
  RETURN_IF_ERROR(options_.save(session, save_path_, step));
  if (!step) return save_path_;
  if (options_.events != nullptr) {
    RETURN_IF_ERROR(options_.events->AddSessionLog(SessionStatus::kCheckpoint, save_path_, step));
  }
  return absl::StrCat(save_path_, "-", *step);
}

std::shared_ptr<Thread> Supervisor::Loop(std::optional<absl::Duration> interval,
                                         std::function<absl::Status()> call) {
  LoopCalls calls;
  calls.run = std::move(call);
  return StartLooper(coordinator_, interval, std::move(calls), "LooperThread");
}

// --- The end

absl::Status Supervisor::Stop(StopOptions options) {
  coordinator_->RequestStop().IgnoreError();
  Coordinator::JoinOptions join;
  join.grace = options.grace.value_or(options_.stop_grace);
  join.ignore_live_threads = options.ignore_live_threads;
  join.interrupted = options_.interrupted;
  absl::Status status = coordinator_->Join(std::move(options.threads), std::move(join));
  // Last, since threads write events.
  if (options.close_events && options_.events != nullptr) {
    status.Update(options_.events->AddSessionLog(SessionStatus::kStop, "", std::nullopt));
    status.Update(options_.events->Close());
    graph_in_events_ = false;
  }
  return status;
}

absl::Status Supervisor::RunManaged(const std::function<absl::Status(Session&)>& body) {
  absl::StatusOr<std::shared_ptr<Session>> session = PrepareOrWaitForSession();
  absl::Status status = session.ok() ? body(**session) : session.status();
  const absl::Status failure = status.ok() ? coordinator_->requested() : status;
  const absl::Status interruption = InterruptionOf(failure, options_.interrupted);
  if (session.ok() && !interruption.ok()) {
    const absl::StatusOr<std::vector<std::string>> saved = StopInterrupted(**session);
    return InterruptionWith(interruption, saved);
  }
  if (!status.ok()) coordinator_->RequestStop(std::move(status)).IgnoreError();
  const absl::Status stopped = Stop();
  // Steps that still wait somewhere end here.
  if (session.ok()) (*session)->Close().IgnoreError();
  return stopped;
}

absl::StatusOr<std::vector<std::string>> Supervisor::StopInterrupted(Session& session) {
  constexpr absl::Duration kGrace = absl::Seconds(2);
  const Uninterrupted uninterrupted;
  // Services end first: one of them may be saving. What threads fail with is a consequence.
  StopOptions services;
  services.close_events = false;
  services.ignore_live_threads = true;
  services.grace = std::min(kGrace, options_.stop_grace);
  Stop(services).IgnoreError();
  std::vector<std::string> saved;
  absl::Status failed;
  if (options_.save && !save_path_.empty()) {
    absl::StatusOr<std::string> path = SaveCheckpoint(session);
    failed = path.status();
    if (path.ok()) saved.push_back(*std::move(path));
  }
  Stop().IgnoreError();  // closes the events
  session.Close().IgnoreError();
  RETURN_IF_ERROR(failed);
  return saved;
}

absl::Status Supervisor::SummaryComputed(Session& session, const Tensor& summary,
                                         std::optional<int64_t> step) {
  if (options_.events == nullptr)
    return RuntimeError("Writing a summary requires a summary writer.");
  if (!step && has_step()) {
    ASSIGN_OR_RETURN(step, StepOf(session));
  }
  return options_.events->AddSummary(summary, step);
}

}  // namespace muster
