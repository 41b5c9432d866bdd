#include "muster/train/hooks/step_hooks.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "muster/train/loop/notice.h"
#include "muster/train/loop/timer.h"

namespace muster {
namespace {

RunArgs Fetching(std::vector<Output> fetches) {
  RunArgs args;
  args.fetches = std::move(fetches);
  return args;
}

// Whether one of the values is not a number. InvalidArgument for what cannot say.
absl::StatusOr<bool> IsNan(const Tensor& tensor) {
  if (tensor.num_elements() != 1) {
    return InvalidArgument("A loss must be a scalar, got a tensor of shape ",
                           tensor.shape().ToString());
  }
  switch (tensor.dtype()) {
    case DType::kFloat:
      return std::isnan(tensor.scalar<float>());
    case DType::kDouble:
      return std::isnan(tensor.scalar<double>());
    case DType::kHalf: {
      const auto bits = *reinterpret_cast<const uint16_t*>(tensor.raw());
      return (bits & 0x7C00) == 0x7C00 && (bits & 0x03FF) != 0;
    }
    case DType::kBfloat16: {
      const auto bits = *reinterpret_cast<const uint16_t*>(tensor.raw());
      return (bits & 0x7F80) == 0x7F80 && (bits & 0x007F) != 0;
    }
    default:
      return false;
  }
}

}  // namespace

// --- StopAtStepHook ------------------------------------------------------------------------------

std::shared_ptr<StopAtStepHook> StopAtStepHook::After(GlobalStepSource step, int64_t num_steps) {
  return std::shared_ptr<StopAtStepHook>(
      new StopAtStepHook(std::move(step), num_steps, std::nullopt));
}

std::shared_ptr<StopAtStepHook> StopAtStepHook::At(GlobalStepSource step, int64_t last_step) {
  return std::shared_ptr<StopAtStepHook>(
      new StopAtStepHook(std::move(step), std::nullopt, last_step));
}

absl::Status StopAtStepHook::Begin() {
  ASSIGN_OR_RETURN(step_, RequireGlobalStep(source_, "StopAtStepHook"));
  return absl::OkStatus();
}

absl::Status StopAtStepHook::AfterCreateSession(const std::shared_ptr<Session>& session,
                                                const std::shared_ptr<Coordinator>&) {
  if (last_step_.has_value()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const int64_t now, GlobalStepValue(*session, step_));
  last_step_ = now + *num_steps_;
  return absl::OkStatus();
}

absl::StatusOr<std::optional<RunArgs>> StopAtStepHook::BeforeRun(RunContext&) {
  return Fetching({step_.read});
}

absl::Status StopAtStepHook::AfterRun(RunContext& context, const RunValues& values) {
  ASSIGN_OR_RETURN(const int64_t stale, StepFromTensor(values.results[0]));
  if (stale + 1 < *last_step_) return absl::OkStatus();
  // It is not known whether this run has counted, or other workers have counted meanwhile.
  ASSIGN_OR_RETURN(const int64_t now, GlobalStepValue(context.session(), step_));
  if (now >= *last_step_) context.RequestStop();
  return absl::OkStatus();
}

// --- LoggingTensorHook ---------------------------------------------------------------------------

LoggingTensorHook::LoggingTensorHook(LoggingTensorOptions options)
    : options_(std::move(options)), timer_(options_.every, options_.clock) {}

absl::Status LoggingTensorHook::Begin() {
  timer_.Reset();
  runs_ = 0;
  ASSIGN_OR_RETURN(tensors_, options_.tensors());
  return absl::OkStatus();
}

std::vector<Output> LoggingTensorHook::Fetches() const {
  std::vector<Output> fetches;
  for (const LoggedTensor& logged : tensors_) fetches.push_back(logged.tensor);
  return fetches;
}

absl::StatusOr<std::optional<RunArgs>> LoggingTensorHook::BeforeRun(RunContext&) {
  const bool only_at_end = !options_.every.steps.has_value() && !options_.every.time.has_value();
  due_ = !only_at_end && timer_.Due(runs_);
  if (!due_) return std::nullopt;
  return Fetching(Fetches());
}

absl::Status LoggingTensorHook::AfterRun(RunContext&, const RunValues& values) {
  if (due_) RETURN_IF_ERROR(Log(values.results));
  ++runs_;
  return absl::OkStatus();
}

absl::Status LoggingTensorHook::End(Session& session) {
  if (!options_.at_end) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<Tensor> values,
                   session.Run(std::vector<std::pair<Output, Tensor>>(), Fetches()));
  return Log(values);
}

absl::Status LoggingTensorHook::Log(absl::Span<const Tensor> values) {
  const std::optional<StepTimer::Elapsed> elapsed = timer_.Happened(runs_);
  if (options_.formatter) {
    ASSIGN_OR_RETURN(const std::string line, options_.formatter(values));
    NoticeInfo(line);
    return absl::OkStatus();
  }
  std::vector<std::string> parts;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    std::string text;
    if (options_.value_text) {
      ASSIGN_OR_RETURN(text, options_.value_text(values[i]));
    } else {
      text = values[i].SummarizeValues(1000);
    }
    parts.push_back(absl::StrCat(tensors_[i].tag, " = ", text));
  }
  std::string line = absl::StrJoin(parts, ", ");
  if (elapsed.has_value())
    absl::StrAppendFormat(&line, " (%.3f sec)", absl::ToDoubleSeconds(elapsed->time));
  NoticeInfo(line);
  return absl::OkStatus();
}

// --- NanTensorHook -------------------------------------------------------------------------------

absl::Status NanTensorHook::NanLoss() {
  return RuntimeError("NaN loss during training.");
}

absl::StatusOr<std::optional<RunArgs>> NanTensorHook::BeforeRun(RunContext&) {
  return Fetching({loss_});
}

absl::Status NanTensorHook::AfterRun(RunContext& context, const RunValues& values) {
  ASSIGN_OR_RETURN(const bool nan, IsNan(values.results[0]));
  if (!nan) return absl::OkStatus();
  constexpr char kText[] = "Model diverged with loss = NaN.";
  if (on_nan_) {
    Notice(LogLevel::kError, kText);
    return on_nan_();
  }
  NoticeWarning(kText);
  context.RequestStop();
  return absl::OkStatus();
}

// --- GlobalStepWaiterHook ------------------------------------------------------------------------

absl::Status GlobalStepWaiterHook::Begin() {
  started_ = false;
  ASSIGN_OR_RETURN(step_, RequireGlobalStep(source_, "_GlobalStepWaiterHook"));
  return absl::OkStatus();
}

absl::StatusOr<std::optional<RunArgs>> GlobalStepWaiterHook::BeforeRun(RunContext& context) {
  if (started_ || wait_until_step_ <= 0) {
    started_ = true;
    return std::nullopt;
  }
  NoticeInfo("Waiting for global step ", wait_until_step_, " before starting training.");
  constexpr absl::Duration kLongestPause = absl::Milliseconds(500);
  absl::Duration pause = absl::Milliseconds(50);
  int64_t last_logged = 0;
  while (true) {
    ASSIGN_OR_RETURN(const int64_t now, GlobalStepValue(context.session(), step_));
    if (now >= wait_until_step_) break;
    if (now - last_logged > 1000) {
      NoticeInfo("Waiting for global step ", wait_until_step_,
                 " before starting training. Current step is ", now, ".");
      last_logged = now;
    }
    RETURN_IF_ERROR(SleepFor(Timer::Real(), pause, interrupted_));
    pause = std::min(2 * pause, kLongestPause);
  }
  started_ = true;
  return std::nullopt;
}

// --- FinalOpsHook and FeedFnHook -----------------------------------------------------------------

absl::Status FinalOpsHook::End(Session& session) {
  ASSIGN_OR_RETURN(const RunArgs args, args_());
  absl::StatusOr<std::vector<Tensor>> values = session.Run(args.feeds, args.fetches, args.targets);
  if (values.status().code() == absl::StatusCode::kOutOfRange) {
    NoticeWarning(
        "The final ops of FinalOpsHook found their input at its end: they should read variables "
        "(the value of a metric), not another batch of the input (its update).");
  }
  RETURN_IF_ERROR(values.status());
  values_ = *std::move(values);
  return absl::OkStatus();
}

absl::StatusOr<std::optional<RunArgs>> FeedFnHook::BeforeRun(RunContext&) {
  RunArgs args;
  ASSIGN_OR_RETURN(args.feeds, feeds_());
  return args;
}

}  // namespace muster
