// Hooks that stop, wait, watch, feed and compute; those that write files are in saving_hooks.h.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "muster/train/hooks/hook.h"
#include "muster/train/hooks/step_timer.h"
#include "muster/train/model/global_step.h"

namespace muster {

// Stops at a global step, or after a number of steps from where the first session starts. A value
// that a run has read may be older than the run, so that the last ones are read again.
class StopAtStepHook : public SessionRunHook {
 public:
  static std::shared_ptr<StopAtStepHook> After(GlobalStepSource step, int64_t num_steps);
  static std::shared_ptr<StopAtStepHook> At(GlobalStepSource step, int64_t last_step);

  absl::Status Begin() override;
  absl::Status AfterCreateSession(const std::shared_ptr<Session>& session,
                                  const std::shared_ptr<Coordinator>& coordinator) override;
  absl::StatusOr<std::optional<RunArgs>> BeforeRun(RunContext& context) override;
  absl::Status AfterRun(RunContext& context, const RunValues& values) override;

  std::optional<int64_t> last_step() const { return last_step_; }

 private:
  StopAtStepHook(GlobalStepSource source, std::optional<int64_t> num_steps,
                 std::optional<int64_t> last_step)
      : source_(std::move(source)), num_steps_(num_steps), last_step_(last_step) {}
  const GlobalStepSource source_;
  const std::optional<int64_t> num_steps_;
  std::optional<int64_t> last_step_;
  GlobalStep step_;
};

struct LoggedTensor {
  std::string tag;
  Output tensor;
};

struct LoggingTensorOptions {
  // Asked when the hook begins.
  std::function<absl::StatusOr<std::vector<LoggedTensor>>()> tensors;
  Interval every;  // none: only at the end
  bool at_end = false;
  // The text of one value; SummarizeValues where it is not set.
  std::function<absl::StatusOr<std::string>(const Tensor&)> value_text;
  // The whole line, instead of "tag = value, ... (x.xxx sec)".
  std::function<absl::StatusOr<std::string>(absl::Span<const Tensor>)> formatter;
  const Clock* clock = nullptr;
};

// Logs values now and then, at the first run in any case. Counts runs, not global steps.
class LoggingTensorHook : public SessionRunHook {
 public:
  explicit LoggingTensorHook(LoggingTensorOptions options);
  absl::Status Begin() override;
  absl::StatusOr<std::optional<RunArgs>> BeforeRun(RunContext& context) override;
  absl::Status AfterRun(RunContext& context, const RunValues& values) override;
  absl::Status End(Session& session) override;

 private:
  std::vector<Output> Fetches() const;
  absl::Status Log(absl::Span<const Tensor> values);

  const LoggingTensorOptions options_;
  StepTimer timer_;
  std::vector<LoggedTensor> tensors_;
  int64_t runs_ = 0;
  bool due_ = false;
};

// Ends the run with an error, or the loop, when a loss is not a number.
class NanTensorHook : public SessionRunHook {
 public:
  // `on_nan` gives the error; null: the loop is stopped instead.
  NanTensorHook(Output loss, std::function<absl::Status()> on_nan)
      : loss_(loss), on_nan_(std::move(on_nan)) {}
  // The error that training ends with where the caller has no other.
  static absl::Status NanLoss();

  absl::StatusOr<std::optional<RunArgs>> BeforeRun(RunContext& context) override;
  absl::Status AfterRun(RunContext& context, const RunValues& values) override;

 private:
  const Output loss_;
  const std::function<absl::Status()> on_nan_;
};

// Delays the first run until others have brought the global step to a value.
class GlobalStepWaiterHook : public SessionRunHook {
 public:
  // `interrupted` is asked while waiting; an error ends the wait with it.
  GlobalStepWaiterHook(GlobalStepSource source, int64_t wait_until_step,
                       std::function<absl::Status()> interrupted = nullptr)
      : source_(std::move(source)),
        wait_until_step_(wait_until_step),
        interrupted_(std::move(interrupted)) {}

  absl::Status Begin() override;
  absl::StatusOr<std::optional<RunArgs>> BeforeRun(RunContext& context) override;

 private:
  const GlobalStepSource source_;
  const int64_t wait_until_step_;
  const std::function<absl::Status()> interrupted_;
  GlobalStep step_;
  bool started_ = false;
};

// Runs ops once, when the loop has ended.
class FinalOpsHook : public SessionRunHook {
 public:
  // Asked at the end.
  explicit FinalOpsHook(std::function<absl::StatusOr<RunArgs>()> args) : args_(std::move(args)) {}
  absl::Status End(Session& session) override;
  // Nothing before the end.
  const std::optional<std::vector<Tensor>>& values() const { return values_; }

 private:
  const std::function<absl::StatusOr<RunArgs>()> args_;
  std::optional<std::vector<Tensor>> values_;
};

// Adds to the feeds of every run.
class FeedFnHook : public SessionRunHook {
 public:
  using Feeds = std::vector<std::pair<Output, Tensor>>;
  explicit FeedFnHook(std::function<absl::StatusOr<Feeds>()> feeds) : feeds_(std::move(feeds)) {}
  absl::StatusOr<std::optional<RunArgs>> BeforeRun(RunContext& context) override;

 private:
  const std::function<absl::StatusOr<Feeds>()> feeds_;
};

}  // namespace muster
