#include "muster/train/hooks/saving_hooks.h"

#include "absl/strings/str_format.h"

#include "muster/train/events/event_writer.h"
#include "muster/train/loop/notice.h"

namespace muster {
namespace {

RunArgs Fetching(std::vector<Output> fetches) {
  RunArgs args;
  args.fetches = std::move(fetches);
  return args;
}

absl::StatusOr<std::shared_ptr<EventWriter>> Open(const EventSink& sink) {
  if (!sink) return nullptr;
  return sink();
}

std::string JoinPath(const std::string& folder, const std::string& name) {
  if (folder.empty()) return name;
  return absl::StrCat(folder, folder.back() == '/' ? "" : "/", name);
}

}  // namespace

EventSink EventsOf(std::string folder) {
  return [folder = std::move(folder)] { return EventWriterCache::Get(folder); };
}

// --- CheckpointSaverHook -------------------------------------------------------------------------

CheckpointSaverHook::CheckpointSaverHook(CheckpointSaverOptions options)
    : options_(std::move(options)),
      save_path_(JoinPath(options_.checkpoint_dir, options_.checkpoint_basename)),
      timer_(options_.every, options_.clock) {
  NoticeInfo("Create CheckpointSaverHook.");
}

absl::Status CheckpointSaverHook::Begin() {
  ASSIGN_OR_RETURN(writer_,
                   Open(options_.sink ? options_.sink : EventsOf(options_.checkpoint_dir)));
  ASSIGN_OR_RETURN(step_, RequireGlobalStep(options_.global_step, "CheckpointSaverHook"));
  for (const auto& listener : options_.listeners) RETURN_IF_ERROR(listener->Begin());
  return absl::OkStatus();
}

absl::Status CheckpointSaverHook::AfterCreateSession(const std::shared_ptr<Session>& session,
                                                     const std::shared_ptr<Coordinator>&) {
  ASSIGN_OR_RETURN(const int64_t step, GlobalStepValue(*session, step_));
  // Not earlier: other hooks may add to the graph until the session is there.
  if (options_.describe) RETURN_IF_ERROR(options_.describe(*session, *writer_));
  RETURN_IF_ERROR(Save(*session, step).status());
  timer_.Happened(step);
  return absl::OkStatus();
}

absl::StatusOr<std::optional<RunArgs>> CheckpointSaverHook::BeforeRun(RunContext&) {
  return Fetching({step_.read});
}

absl::Status CheckpointSaverHook::AfterRun(RunContext& context, const RunValues& values) {
  ASSIGN_OR_RETURN(const int64_t stale, StepFromTensor(values.results[0]));
  if (!timer_.Due(stale + 1)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const int64_t step, GlobalStepValue(context.session(), step_));
  if (!timer_.Due(step)) return absl::OkStatus();
  timer_.Happened(step);
  ASSIGN_OR_RETURN(const bool stop, Save(context.session(), step));
  if (stop) context.RequestStop();
  return absl::OkStatus();
}

absl::Status CheckpointSaverHook::End(Session& session) {
  ASSIGN_OR_RETURN(const int64_t step, GlobalStepValue(session, step_));
  if (saved_step_ != step) RETURN_IF_ERROR(Save(session, step).status());
  for (const auto& listener : options_.listeners) RETURN_IF_ERROR(listener->End(session, step));
  return absl::OkStatus();
}

absl::StatusOr<std::string> CheckpointSaverHook::Interrupted(Session& session) {
  ASSIGN_OR_RETURN(const int64_t step, GlobalStepValue(session, step_));
  if (saved_step_ != step) RETURN_IF_ERROR(Save(session, step).status());
  return absl::StrCat(save_path_, "-", step);
}

absl::StatusOr<bool> CheckpointSaverHook::Save(Session& session, int64_t step) {
  NoticeInfo("Saving checkpoints for ", step, " into ", save_path_, ".");
  for (const auto& listener : options_.listeners)
    RETURN_IF_ERROR(listener->BeforeSave(session, step));
  RETURN_IF_ERROR(options_.save(session, save_path_, step));
  saved_step_ = step;
  RETURN_IF_ERROR(writer_->AddSessionLog(SessionStatus::kCheckpoint, save_path_, "", step));
  bool stop = false;
  for (const auto& listener : options_.listeners) {
    ASSIGN_OR_RETURN(const bool wants_stop, listener->AfterSave(session, step));
    if (!wants_stop) continue;
    NoticeInfo("A CheckpointSaverListener requested that training be stopped. listener: ",
               listener->name());
    stop = true;
  }
  return stop;
}

// --- SummarySaverHook ----------------------------------------------------------------------------

SummarySaverHook::SummarySaverHook(SummarySaverOptions options)
    : options_(std::move(options)), timer_(options_.every, options_.clock) {}

absl::Status SummarySaverHook::Begin() {
  ASSIGN_OR_RETURN(writer_, Open(options_.sink));
  next_step_.reset();
  ASSIGN_OR_RETURN(step_, RequireGlobalStep(options_.global_step, "SummarySaverHook"));
  return absl::OkStatus();
}

absl::StatusOr<std::optional<RunArgs>> SummarySaverHook::BeforeRun(RunContext&) {
  requested_ = !next_step_.has_value() || timer_.Due(*next_step_);
  RunArgs args = Fetching({step_.read});
  if (requested_) {
    ASSIGN_OR_RETURN(const std::vector<Output> summaries, options_.summaries());
    args.fetches.insert(args.fetches.end(), summaries.begin(), summaries.end());
  }
  return args;
}

absl::Status SummarySaverHook::AfterRun(RunContext& context, const RunValues& values) {
  if (writer_ == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(const int64_t stale, StepFromTensor(values.results[0]));
  int64_t step = stale + 1;
  if (requested_) {
    ASSIGN_OR_RETURN(step, GlobalStepValue(context.session(), step_));
  }
  if (!next_step_.has_value())
    RETURN_IF_ERROR(writer_->AddSessionLog(SessionStatus::kStart, "", "", step));
  if (requested_) {
    timer_.Happened(step);
    for (const Tensor& summary : values.results.subspan(1)) {
      if (summary.dtype() != DType::kString || summary.num_elements() != 1)
        return InvalidArgument("A summary must be a scalar string, got ", summary.ToString());
      RETURN_IF_ERROR(writer_->AddSummary(summary.scalar<std::string>(), step));
    }
  }
  next_step_ = step + 1;
  return absl::OkStatus();
}

absl::Status SummarySaverHook::End(Session&) {
  return writer_ == nullptr ? absl::OkStatus() : writer_->Flush();
}

// --- StepCounterHook -----------------------------------------------------------------------------

StepCounterHook::StepCounterHook(StepCounterOptions options)
    : options_(std::move(options)), timer_(options_.every, options_.clock) {}

absl::Status StepCounterHook::Begin() {
  ASSIGN_OR_RETURN(writer_, Open(options_.sink));
  ASSIGN_OR_RETURN(step_, RequireGlobalStep(options_.global_step, "StepCounterHook"));
  return absl::OkStatus();
}

absl::StatusOr<std::optional<RunArgs>> StepCounterHook::BeforeRun(RunContext&) {
  return Fetching({step_.read});
}

absl::Status StepCounterHook::AfterRun(RunContext& context, const RunValues& values) {
  ASSIGN_OR_RETURN(const int64_t stale, StepFromTensor(values.results[0]));
  if (timer_.Due(stale + 1)) {
    ASSIGN_OR_RETURN(const int64_t step, GlobalStepValue(context.session(), step_));
    if (timer_.Due(step)) {
      const std::optional<StepTimer::Elapsed> elapsed = timer_.Happened(step);
      if (elapsed.has_value()) RETURN_IF_ERROR(Record(*elapsed, step));
    }
  }
  WarnIfStill(stale);
  return absl::OkStatus();
}

absl::Status StepCounterHook::Record(const StepTimer::Elapsed& elapsed, int64_t step) {
  const double per_second =
      static_cast<double>(elapsed.steps) / absl::ToDoubleSeconds(elapsed.time);
  const std::string tag = absl::StrCat(step_.name, "/sec");
  if (writer_ != nullptr)
    RETURN_IF_ERROR(writer_->AddScalar(tag, static_cast<float>(per_second), step));
  NoticeInfo(tag, ": ", absl::StrFormat("%g", per_second));
  return absl::OkStatus();
}

void StepCounterHook::WarnIfStill(int64_t step) {
  // A synchronous worker may make several steps before the update to which they contribute; a
  // program that forgets the step never increases it.
  constexpr int kStillRuns = 100;
  constexpr int kWarnings = 5;
  if (last_step_.has_value() && last_step_ != step) increases_ = true;
  if (!increases_ && last_step_ == step && ++still_runs_ % kStillRuns == 0 &&
      still_runs_ / kStillRuns <= kWarnings) {
    NoticeWarning(
        "It seems that global step (tf.train.get_global_step) has not been increased. Current "
        "value (could be stable): ",
        step, " vs previous value: ", *last_step_,
        ". You could increase the global step by passing tf.train.get_global_step() to "
        "Optimizer.apply_gradients or Optimizer.minimize.");
  }
  last_step_ = step;
}

// --- ProfilerHook --------------------------------------------------------------------------------

ProfilerHook::ProfilerHook(ProfilerOptions options)
    : options_(std::move(options)), timer_(options_.every, options_.clock) {}

absl::Status ProfilerHook::Begin() {
  ASSIGN_OR_RETURN(writer_, Open(options_.sink ? options_.sink : EventsOf(options_.output_dir)));
  next_step_.reset();
  ASSIGN_OR_RETURN(step_, RequireGlobalStep(options_.global_step, "ProfilerHook"));
  return absl::OkStatus();
}

absl::StatusOr<std::optional<RunArgs>> ProfilerHook::BeforeRun(RunContext&) {
  requested_ = next_step_.has_value() && timer_.Due(*next_step_);
  RunArgs args = Fetching({step_.read});
  args.options.trace = requested_;
  args.options.keep_partition_graphs = requested_;
  return args;
}

absl::Status ProfilerHook::AfterRun(RunContext& context, const RunValues& values) {
  ASSIGN_OR_RETURN(const int64_t stale, StepFromTensor(values.results[0]));
  // The first interval begins here.
  if (!next_step_.has_value()) timer_.Happened(stale);
  int64_t step = stale + 1;
  if (requested_) {
    ASSIGN_OR_RETURN(step, GlobalStepValue(context.session(), step_));
    timer_.Happened(step);
    const std::string path =
        JoinPath(options_.output_dir, absl::StrCat("timeline-", step, ".json"));
    NoticeInfo("Saving timeline for ", step, " into '", path, "'.");
    ASSIGN_OR_RETURN(const std::string metadata, options_.save(values.metadata, path));
    if (writer_ != nullptr)
      RETURN_IF_ERROR(writer_->AddRunMetadata(metadata, absl::StrCat("step_", step)));
  }
  next_step_ = step + 1;
  return absl::OkStatus();
}

}  // namespace muster
