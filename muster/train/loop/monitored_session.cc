#include "muster/train/loop/monitored_session.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_join.h"

#include "muster/train/loop/coordinator.h"
#include "muster/train/loop/interruption.h"
#include "muster/train/loop/notice.h"
#include "muster/train/loop/timer.h"

namespace muster {
namespace {

// The second half of what is said when a session is lost, as TensorFlow words it.
constexpr char kMayBeLoad[] =
    "This error may also occur due to a gRPC failure caused by high memory or network bandwidth "
    "usage in the parameter servers. If this error occurs repeatedly, try increasing the number of "
    "parameter servers assigned to the job. Error: ";
constexpr char kNewSession[] =
    "This may be due to a preemption in a connected worker or parameter server. The current "
    "session will be closed and a new session will be created. ";

// What the caller and the hooks want of one run, joined: each tensor is fetched once.
class JoinedStep {
 public:
  // `on_conflict` is the error when one of its feeds is there already.
  absl::Status Add(const RunArgs& args, absl::string_view on_conflict) {
    std::vector<std::string> conflicts;
    for (const auto& [output, tensor] : args.feeds) {
      if (!fed_.insert(output).second) conflicts.push_back(absl::StrCat("'", output.name(), "'"));
      signature_.feeds.push_back(output);
      feeds_.push_back(tensor);
    }
    if (!conflicts.empty())
      return RuntimeError(on_conflict, " Conflict(s): [", absl::StrJoin(conflicts, ", "), "]");
    std::vector<size_t>& places = places_.emplace_back();
    for (const Output& fetch : args.fetches) {
      const auto [at, is_new] = fetched_.emplace(fetch, signature_.fetches.size());
      if (is_new) signature_.fetches.push_back(fetch);
      places.push_back(at->second);
    }
    for (Node* target : args.targets)
      if (targets_.insert(target).second) signature_.targets.push_back(target);
    options_.timeout = std::max(options_.timeout, args.options.timeout);
    options_.trace |= args.options.trace;
    options_.keep_partition_graphs |= args.options.keep_partition_graphs;
    return absl::OkStatus();
  }

  absl::Status Run(Session& session, RunMetadata* metadata) {
    ASSIGN_OR_RETURN(const std::shared_ptr<StepPlan> plan, session.Prepare(signature_));
    ASSIGN_OR_RETURN(values_, session.Run(*plan, std::move(feeds_), options_, metadata));
    return absl::OkStatus();
  }

  const RunOptions& options() const { return options_; }
  size_t size() const { return places_.size(); }
  // Of the i-th Add.
  std::vector<Tensor> Values(size_t i) const {
    std::vector<Tensor> values;
    for (const size_t place : places_[i]) values.push_back(values_[place]);
    return values;
  }

 private:
  StepSignature signature_;
  std::vector<Tensor> feeds_;
  RunOptions options_;
  absl::flat_hash_set<Output> fed_;
  absl::flat_hash_map<Output, size_t> fetched_;
  absl::flat_hash_set<Node*> targets_;
  std::vector<std::vector<size_t>> places_;
  std::vector<Tensor> values_;
};

}  // namespace

bool IsPreemption(const absl::Status& status) {
  return absl::IsAborted(status) || absl::IsUnavailable(status);
}

// One session with its hooks and its coordinator: what is replaced when a task was lost.
class MonitoredSession::Coordinated {
 public:
  Coordinated(std::shared_ptr<Session> session, std::shared_ptr<Coordinator> coordinator,
              const MonitoredSessionOptions& options)
      : session_(std::move(session)), coordinator_(std::move(coordinator)), options_(options) {}

  const std::shared_ptr<Session>& session() const { return session_; }
  const std::shared_ptr<Coordinator>& coordinator() const { return coordinator_; }

  absl::Status Start() {
    if (options_.start_queue_runners)
      RETURN_IF_ERROR(options_.start_queue_runners(session_, coordinator_));
    for (const auto& hook : options_.hooks)
      RETURN_IF_ERROR(hook->AfterCreateSession(session_, coordinator_));
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<Tensor>> Run(const RunArgs& args, RunMetadata* metadata) {
    absl::StatusOr<std::vector<Tensor>> values = RunHooked(args, metadata);
    if (values.ok() || IsPreemption(values.status())) return values;
    // The error of this run may be a consequence of the error of a thread.
    const absl::Status requested = coordinator_->requested();
    if (IsPreemption(requested)) return requested;
    return values;
  }

  // What a thread has failed with, or whether the loop should end.
  absl::StatusOr<bool> ShouldStop() const {
    RETURN_IF_ERROR(coordinator_->requested());
    return coordinator_->ShouldStop() || stop_requested_;
  }

  // Ends what runs without waiting for it.
  void Abandon() {
    coordinator_->RequestStop().IgnoreError();
    session_->Close().IgnoreError();
  }

  absl::Status Close(absl::Duration grace) {
    RETURN_IF_ERROR(coordinator_->RequestStop());
    Coordinator::JoinOptions join;
    join.grace = grace;
    join.ignore_live_threads = true;
    join.interrupted = options_.interrupted;
    const absl::Status joined = coordinator_->Join({}, std::move(join));
    const absl::Status closed = session_->Close();
    // Errors of threads have been reported already.
    if (!closed.ok() && !IsPreemption(closed)) LOG(WARNING) << closed.message();
    return joined;
  }

 private:
  absl::StatusOr<std::vector<Tensor>> RunHooked(const RunArgs& args, RunMetadata* metadata) {
    if (stop_requested_) return RuntimeError("Run called even after should_stop requested.");
    RunContext context(args, *session_);
    JoinedStep step;
    std::vector<std::optional<size_t>> places;  // of the hooks' requests in `step`
    for (const auto& hook : options_.hooks) {
      ASSIGN_OR_RETURN(const std::optional<RunArgs> request, hook->BeforeRun(context));
      places.emplace_back();
      if (!request.has_value()) continue;
      places.back() = step.size();
      RETURN_IF_ERROR(step.Add(*request, "Same tensor is fed by two hooks."));
    }
    const size_t callers = step.size();
    RETURN_IF_ERROR(step.Add(args, "Same tensor is fed by a SessionRunHook and user."));

    RunMetadata own;
    if (metadata == nullptr && step.options().trace) metadata = &own;
    RETURN_IF_ERROR(step.Run(*session_, metadata));
    for (size_t i = 0; i < places.size(); ++i) {
      const std::vector<Tensor> results =
          places[i].has_value() ? step.Values(*places[i]) : std::vector<Tensor>();
      const RunValues values{results, step.options(), metadata == nullptr ? own : *metadata};
      RETURN_IF_ERROR(options_.hooks[i]->AfterRun(context, values));
    }
    stop_requested_ |= context.stop_requested();
    return step.Values(callers);
  }

  const std::shared_ptr<Session> session_;
  const std::shared_ptr<Coordinator> coordinator_;
  const MonitoredSessionOptions& options_;
  bool stop_requested_ = false;
};

MonitoredSession::MonitoredSession(std::shared_ptr<SessionCreator> creator,
                                   MonitoredSessionOptions options)
    : creator_(std::move(creator)), options_(std::move(options)) {}

absl::StatusOr<std::unique_ptr<MonitoredSession>> MonitoredSession::Create(
    std::shared_ptr<SessionCreator> creator, MonitoredSessionOptions options) {
  auto session = std::unique_ptr<MonitoredSession>(
      new MonitoredSession(std::move(creator), std::move(options)));
  for (const auto& hook : session->options_.hooks) RETURN_IF_ERROR(hook->Begin());
  RETURN_IF_ERROR(session->CreateUntilDone());
  return session;
}

MonitoredSession::~MonitoredSession() {
  if (current_ != nullptr) current_->Abandon();
}

absl::StatusOr<std::shared_ptr<Coordinator>> MonitoredSession::NewCoordinator() const {
  if (options_.new_coordinator) return options_.new_coordinator();
  Coordinator::Options options;
  options.is_clean = [](const absl::Status&) { return false; };
  options.timer = options_.timer;
  return std::make_shared<Coordinator>(std::move(options));
}

absl::Status MonitoredSession::CreateOnce() {
  ASSIGN_OR_RETURN(std::shared_ptr<Session> session, creator_->CreateSession());
  absl::StatusOr<std::shared_ptr<Coordinator>> coordinator = NewCoordinator();
  if (!coordinator.ok()) {
    session->Close().IgnoreError();
    return coordinator.status();
  }
  current_ = std::make_unique<Coordinated>(std::move(session), *std::move(coordinator), options_);
  const absl::Status started = current_->Start();
  if (started.ok()) return started;
  // Threads that run already must not outlive a session that is discarded.
  const std::unique_ptr<Coordinated> failed = std::move(current_);
  failed->Close(options_.stop_grace_period).IgnoreError();
  return started;
}

absl::Status MonitoredSession::CreateUntilDone() {
  Timer& timer = options_.timer == nullptr ? Timer::Real() : *options_.timer;
  while (true) {
    const absl::Status created = CreateOnce();
    if (created.ok() || !options_.recover || !IsPreemption(created)) return created;
    NoticeInfo(
        "An error was raised while a session was being created. This may be due to a preemption "
        "of a connected worker or parameter server. A new session will be created. ",
        kMayBeLoad, created.message());
    RETURN_IF_ERROR(SleepFor(timer, options_.creation_pause, options_.interrupted));
  }
}

absl::Status MonitoredSession::CloseCurrent(absl::Duration grace) {
  if (current_ == nullptr) return absl::OkStatus();
  const std::unique_ptr<Coordinated> last = std::move(current_);
  const absl::Status closed = last->Close(grace);
  if (!options_.recover || !IsPreemption(closed)) return closed;
  NoticeWarning(
      "An error occurred when attempting to close the session. This may be due to a preemption in "
      "a connected worker or parameter server. Error: ",
      closed.message());
  return absl::OkStatus();
}

absl::Status MonitoredSession::Recover(const absl::Status& cause, absl::string_view when) {
  NoticeInfo("An error was raised", when, ". ", kNewSession, kMayBeLoad, cause.message());
  RETURN_IF_ERROR(CloseCurrent(options_.stop_grace_period));
  return CreateUntilDone();
}

absl::StatusOr<std::vector<Tensor>> MonitoredSession::Run(const RunArgs& args,
                                                          RunMetadata* metadata) {
  while (true) {
    if (closed_) return RuntimeError("The monitored session is closed.");
    // A creation that failed for good is tried again by the next run.
    if (current_ == nullptr) RETURN_IF_ERROR(CreateUntilDone());
    absl::StatusOr<std::vector<Tensor>> values = current_->Run(args, metadata);
    if (values.ok() || !options_.recover || !IsPreemption(values.status())) return values;
    RETURN_IF_ERROR(Recover(values.status(), ""));
  }
}

absl::StatusOr<std::vector<Tensor>> MonitoredSession::Run(
    std::vector<std::pair<Output, Tensor>> feeds, std::vector<Output> fetches,
    std::vector<Node*> targets) {
  RunArgs args;
  args.feeds = std::move(feeds);
  args.fetches = std::move(fetches);
  args.targets = std::move(targets);
  return Run(args);
}

absl::Status MonitoredSession::RunStep(const std::function<absl::Status(StepContext&)>& step) {
  while (true) {
    if (closed_) return RuntimeError("The monitored session is closed.");
    if (current_ == nullptr) RETURN_IF_ERROR(CreateUntilDone());
    StepContext context(*current_->session(), [this](const RunArgs& args, RunMetadata* metadata) {
      return current_->Run(args, metadata);
    });
    const absl::Status done = step(context);
    if (done.ok() || !options_.recover || !IsPreemption(done)) return done;
    RETURN_IF_ERROR(Recover(done, ""));
  }
}

bool MonitoredSession::ShouldStop() {
  const absl::StatusOr<bool> stop = CheckStop();
  failure_.Update(stop.status());
  return !stop.ok() || *stop;
}

absl::StatusOr<bool> MonitoredSession::CheckStop() {
  if (closed_ || current_ == nullptr) return true;
  const absl::StatusOr<bool> stop = current_->ShouldStop();
  if (stop.ok()) return stop;
  // Any other error waits for Close, which reports it.
  if (!options_.recover) return stop.status();
  if (!IsPreemption(stop.status())) return true;
  RETURN_IF_ERROR(Recover(stop.status(), " while considering whether the session is complete"));
  return false;
}

absl::Status MonitoredSession::CloseWith(bool clean) {
  if (closed_) return RuntimeError("Session is already closed.");
  closed_ = true;
  absl::Status ended;
  if (clean && current_ != nullptr) {
    for (const auto& hook : options_.hooks) {
      ended = hook->End(*current_->session());
      if (!ended.ok()) break;
    }
  }
  if (clean) {
    // A hook was interrupted that may have been saving.
    const absl::Status failure = FailureAfter(absl::OkStatus());
    const absl::Status interruption = InterruptionOf(failure.ok() ? ended : failure, {});
    if (!interruption.ok()) return InterruptionWith(interruption, SaveAndClose());
  }
  const absl::Status closed = CloseCurrent(options_.stop_grace_period);
  if (!closed.ok()) return closed;
  return ended.ok() ? failure_ : ended;
}

absl::StatusOr<std::vector<std::string>> MonitoredSession::CloseInterrupted() {
  if (closed_) return RuntimeError("Session is already closed.");
  closed_ = true;
  return SaveAndClose();
}

absl::StatusOr<std::vector<std::string>> MonitoredSession::SaveAndClose() {
  constexpr absl::Duration kGrace = absl::Seconds(2);
  const Uninterrupted uninterrupted;
  std::vector<std::string> saved;
  absl::Status failed;
  if (current_ != nullptr) {
    for (const auto& hook : options_.hooks) {
      const absl::StatusOr<std::string> done = hook->Interrupted(*current_->session());
      failed.Update(done.status());
      if (done.ok() && !done->empty()) saved.push_back(*done);
    }
  }
  // The interruption ended the loop; errors of threads are only its consequences.
  CloseCurrent(std::min(kGrace, options_.stop_grace_period)).IgnoreError();
  RETURN_IF_ERROR(failed);
  return saved;
}

// What a loop has failed with that ended with `error`, which may not know of failures elsewhere.
absl::Status MonitoredSession::FailureAfter(const absl::Status& error) const {
  if (!error.ok() || !failure_.ok()) return error.ok() ? failure_ : error;
  if (current_ == nullptr) return absl::OkStatus();
  const absl::Status thread = current_->coordinator()->requested();
  return options_.recover && IsPreemption(thread) ? absl::OkStatus() : thread;
}

absl::Status MonitoredSession::CloseAfter(const absl::Status& error) {
  const absl::Status interruption = InterruptionOf(FailureAfter(error), options_.interrupted);
  if (!interruption.ok() && !closed_) return InterruptionWith(interruption, CloseInterrupted());
  const bool clean = error.ok() || absl::IsOutOfRange(error);
  const absl::Status closed = CloseWith(clean);
  // An interruption ends waits here too, but the loop has failed by itself.
  if (!closed.ok() && (clean || !IsInterruption(closed))) return closed;
  return clean ? absl::OkStatus() : error;
}

std::shared_ptr<Session> MonitoredSession::raw_session() const {
  return current_ == nullptr ? nullptr : current_->session();
}

std::shared_ptr<Coordinator> MonitoredSession::coordinator() const {
  return current_ == nullptr ? nullptr : current_->coordinator();
}

}  // namespace muster
