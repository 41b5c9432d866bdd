#include "muster/train/loop/session_manager.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"

#include "muster/train/loop/notice.h"

namespace muster {
namespace {

constexpr absl::Duration kFirstPoll = absl::Milliseconds(50);
// Pauses grow with the time waited so far, so that a model that is ready is found with a delay that
// is a small fraction of it.
constexpr int64_t kWaitedPerPoll = 50;

// The pauses of a polling loop, and when it logs that it still waits.
class Polling {
 public:
  Polling(Timer& timer, absl::Duration longest_pause, absl::Duration max_wait,
          const Interrupted& interrupted)
      : timer_(timer),
        longest_pause_(std::max(longest_pause, absl::ZeroDuration())),
        max_wait_(max_wait),
        interrupted_(interrupted),
        start_(timer.Now()) {}

  bool over() const { return timer_.Now() - start_ >= max_wait_; }

  // One line at the first pause, when it changes, and as often as TensorFlow would say it.
  void Say(const std::string& line) {
    if (line == said_ && timer_.Now() - said_at_ < longest_pause_) return;
    NoticeInfo(line);
    said_ = line;
    said_at_ = timer_.Now();
  }

  absl::Status Pause() {
    const absl::Duration waited = timer_.Now() - start_;
    absl::Duration pause = std::max(kFirstPoll, waited / kWaitedPerPoll);
    pause = std::min(pause, std::max(longest_pause_, absl::Milliseconds(1)));
    return SleepFor(timer_, std::min(pause, max_wait_ - waited), interrupted_);
  }

 private:
  Timer& timer_;
  const absl::Duration longest_pause_, max_wait_;
  const Interrupted& interrupted_;
  const absl::Duration start_;
  std::string said_;
  absl::Duration said_at_ = absl::ZeroDuration();
};

absl::StatusOr<std::vector<Tensor>> RunStep(Session& session, const InitStep& step) {
  ASSIGN_OR_RETURN(std::shared_ptr<StepPlan> plan, session.Prepare(step.signature));
  return session.Run(*plan, step.feeds, step.options);
}

std::string NameOf(const std::optional<InitStep>& step) {
  return step ? step->name : "None";
}

std::string OrNone(const std::optional<std::string>& text) {
  return text.value_or("None");
}

}  // namespace

InitStep InitStep::Of(Node* op) {
  InitStep step;
  step.signature.targets.push_back(op);
  step.name = op->name();
  return step;
}

InitStep InitStep::Of(Output tensor) {
  InitStep step;
  step.signature.fetches.push_back(tensor);
  step.name = tensor.name();
  return step;
}

SessionManager::SessionManager(Options options)
    : options_(std::move(options)),
      timer_(options_.timer != nullptr ? *options_.timer : Timer::Real()) {}

absl::StatusOr<std::unique_ptr<SessionManager>> SessionManager::Create(Options options) {
  if (options.ready_for_local_init && !options.local_init) {
    return ValueError(
        "If you pass a ready_for_local_init_op you must also pass a local_init_op , "
        "ready_for_local_init_op [",
        options.ready_for_local_init->name, "]");
  }
  return std::unique_ptr<SessionManager>(new SessionManager(std::move(options)));
}

// --- Restoring

absl::StatusOr<SessionManager::Recovered> SessionManager::Restore(
    const SessionFactory& factory, const CheckpointSource& source) const {
  Recovered recovered;
  ASSIGN_OR_RETURN(recovered.session, factory());
  if (!source.directory.empty() && !source.file.empty())
    return ValueError("Can not provide both checkpoint_dir and checkpoint_filename_with_path.");
  if (!source.restore || (source.directory.empty() && source.file.empty())) return recovered;
  if (!source.file.empty()) {
    RETURN_IF_ERROR(source.restore(*recovered.session, source.file));
    recovered.ready = true;
    return recovered;
  }
  Polling polling(timer_, options_.recovery_wait, source.max_wait, options_.interrupted);
  ASSIGN_OR_RETURN(CheckpointSource::State state, source.read_state(source.directory));
  while (state.newest.empty()) {
    if (!source.wait || polling.over()) return recovered;
    polling.Say("Waiting for checkpoint to be available.");
    RETURN_IF_ERROR(polling.Pause());
    ASSIGN_OR_RETURN(state, source.read_state(source.directory));
  }
  RETURN_IF_ERROR(source.restore(*recovered.session, state.newest));
  if (source.recover_last_checkpoints)
    RETURN_IF_ERROR(source.recover_last_checkpoints(std::move(state.all)));
  recovered.ready = true;
  return recovered;
}

// --- Ready?

absl::StatusOr<std::optional<std::string>> SessionManager::Missing(
    const std::optional<InitStep>& step, Session& session, absl::string_view what) const {
  if (!step) return std::nullopt;
  const absl::StatusOr<std::vector<Tensor>> values = RunStep(session, *step);
  if (absl::IsFailedPrecondition(values.status())) {
    const std::string message(values.status().message());
    if (absl::StrContains(message, "uninitialized")) return message;
    NoticeWarning(what, " : error [", message, "]");
  }
  RETURN_IF_ERROR(values.status());
  // Old programs use an operation, or a number.
  if (values->empty() || (*values)[0].dtype() == DType::kInt32 ||
      (*values)[0].num_elements() == 0) {
    return std::nullopt;
  }
  const Tensor& names = (*values)[0];
  if (names.dtype() != DType::kString) {
    return InvalidArgument("'", step->name,
                           "' says whether the model is ready: it must give names,", " not ",
                           DTypeName(names.dtype()));
  }
  return absl::StrCat("Variables not initialized: ",
                      absl::StrJoin(names.values<std::string>(), ", "));
}

absl::StatusOr<std::optional<std::string>> SessionManager::LocalInit(Session& session) const {
  if (!options_.local_init) return std::nullopt;
  ASSIGN_OR_RETURN(
      std::optional<std::string> missing,
      Missing(options_.ready_for_local_init, session, "Model not ready for local init"));
  if (missing) return missing;
  NoticeInfo("Running local_init_op.");
  RETURN_IF_ERROR(RunStep(session, *options_.local_init).status());
  NoticeInfo("Done running local_init_op.");
  return std::nullopt;
}

// --- Sessions

absl::StatusOr<SessionManager::Recovered> SessionManager::Keep(
    const SessionFactory& factory) const {
  Recovered kept;
  if (!options_.ready || !options_.keeps_model || !options_.keeps_model()) return kept;
  ASSIGN_OR_RETURN(kept.session, factory());
  ASSIGN_OR_RETURN(const std::optional<std::string> missing,
                   Missing(options_.ready, *kept.session, "Model not ready"));
  kept.ready = !missing;
  return kept;
}

absl::StatusOr<std::shared_ptr<Session>> SessionManager::PrepareSession(
    const SessionFactory& factory, const InitOptions& init, const CheckpointSource& source) const {
  ASSIGN_OR_RETURN(Recovered recovered, Keep(factory));
  if (!recovered.ready) {
    ASSIGN_OR_RETURN(recovered, Restore(factory, source));
  }
  Session& session = *recovered.session;
  if (!recovered.ready) {
    if (!init.init && !init.init_fn && !options_.local_init) {
      return RuntimeError(
          "Model is not initialized and no init_op or init_fn or local_init_op was given");
    }
    if (init.init) RETURN_IF_ERROR(RunStep(session, *init.init).status());
    if (init.init_fn) RETURN_IF_ERROR(init.init_fn(session));
  }
  ASSIGN_OR_RETURN(std::optional<std::string> missing, LocalInit(session));
  if (missing) {
    return RuntimeError("Init operations did not make model ready for local_init.  Init op: ",
                        NameOf(init.init), ", init fn: ", init.init_fn_name, ", error: ", *missing);
  }
  ASSIGN_OR_RETURN(missing, Missing(options_.ready, session, "Model not ready"));
  if (missing) {
    return RuntimeError("Init operations did not make model ready.  Init op: ", NameOf(init.init),
                        ", init fn: ", init.init_fn_name,
                        ", local_init_op: ", NameOf(options_.local_init), ", error: ", *missing);
  }
  return recovered.session;
}

absl::StatusOr<SessionManager::Recovered> SessionManager::RecoverSession(
    const SessionFactory& factory, const CheckpointSource& source) const {
  ASSIGN_OR_RETURN(Recovered recovered, Restore(factory, source));
  ASSIGN_OR_RETURN(std::optional<std::string> missing, LocalInit(*recovered.session));
  if (!recovered.ready) return recovered;
  const std::string& from = source.directory.empty() ? source.file : source.directory;
  if (missing) {
    recovered.ready = false;
    NoticeInfo("Restoring model from ", from,
               " did not make model ready for local init: ", *missing);
    return recovered;
  }
  ASSIGN_OR_RETURN(missing, Missing(options_.ready, *recovered.session, "Model not ready"));
  if (missing) {
    recovered.ready = false;
    NoticeInfo("Restoring model from ", from, " did not make model ready: ", *missing);
    return recovered;
  }
  NoticeInfo("Restored model from ", from);
  return recovered;
}

absl::StatusOr<SessionManager::Look> SessionManager::LookAt(Session& session) const {
  Look look;
  ASSIGN_OR_RETURN(look.local_missing, LocalInit(session));
  if (look.local_missing) return look;
  look.local_init_ran = options_.local_init.has_value();
  ASSIGN_OR_RETURN(look.missing, Missing(options_.ready, session, "Model not ready"));
  look.ready = !look.missing;
  return look;
}

absl::StatusOr<std::shared_ptr<Session>> SessionManager::WaitForSession(
    const SessionFactory& factory, absl::Duration max_wait) const {
  Polling polling(timer_, options_.recovery_wait, max_wait, options_.interrupted);
  std::shared_ptr<Session> session;
  for (;;) {
    const bool is_new = session == nullptr;
    if (is_new) {
      ASSIGN_OR_RETURN(session, factory());
    }
    const absl::StatusOr<Look> look = LookAt(*session);
    if (look.ok() && look->ready) return session;
    // TensorFlow opens a session for every look. One that only looked is as good as new, unless a
    // task has been restarted meanwhile.
    const bool stale = !look.ok() && !is_new &&
                       (absl::IsAborted(look.status()) || absl::IsUnavailable(look.status()));
    if (!look.ok() || look->local_init_ran) {
      session->Close().IgnoreError();
      session = nullptr;
    }
    if (stale) continue;
    RETURN_IF_ERROR(look.status());
    if (polling.over()) {
      if (session != nullptr) session->Close().IgnoreError();
      return absl::DeadlineExceededError(absl::StrCat("Session was not ready after waiting ",
                                                      absl::ToInt64Seconds(max_wait), " secs."));
    }
    polling.Say(absl::StrCat("Waiting for model to be ready.  Ready_for_local_init_op:  ",
                             OrNone(look->local_missing), ", ready: ", OrNone(look->missing)));
    RETURN_IF_ERROR(polling.Pause());
  }
}

}  // namespace muster
