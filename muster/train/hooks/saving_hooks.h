// Hooks that write: checkpoints, summaries, the speed of training, and profiles.
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

class EventWriter;

// Where events go; asked when a hook begins. Empty: nowhere.
using EventSink = std::function<absl::StatusOr<std::shared_ptr<EventWriter>>()>;
// The one writer that this process has for a folder.
EventSink EventsOf(std::string folder);

// Called around every save.
class CheckpointSaverListener {
 public:
  virtual ~CheckpointSaverListener() = default;
  virtual absl::Status Begin() { return absl::OkStatus(); }
  virtual absl::Status BeforeSave(Session&, int64_t) { return absl::OkStatus(); }
  // True: training should stop.
  virtual absl::StatusOr<bool> AfterSave(Session&, int64_t) { return false; }
  virtual absl::Status End(Session&, int64_t) { return absl::OkStatus(); }
  virtual std::string name() const { return "CheckpointSaverListener"; }
};

struct CheckpointSaverOptions {
  GlobalStepSource global_step;
  std::string checkpoint_dir;
  std::string checkpoint_basename = "model.ckpt";
  EventSink sink;  // empty: the events of checkpoint_dir
  Interval every;
  // Writes one checkpoint; training_session.h has one for C++.
  std::function<absl::Status(Session&, const std::string& path, int64_t step)> save;
  // Writes what describes the graph, once per session.
  std::function<absl::Status(Session&, EventWriter&)> describe;
  std::vector<std::shared_ptr<CheckpointSaverListener>> listeners;
  const Clock* clock = nullptr;
};

// Saves when a session is created, at intervals, and at the end if steps came after the last save.
class CheckpointSaverHook : public SessionRunHook {
 public:
  explicit CheckpointSaverHook(CheckpointSaverOptions options);
  absl::Status Begin() override;
  absl::Status AfterCreateSession(const std::shared_ptr<Session>& session,
                                  const std::shared_ptr<Coordinator>& coordinator) override;
  absl::StatusOr<std::optional<RunArgs>> BeforeRun(RunContext& context) override;
  absl::Status AfterRun(RunContext& context, const RunValues& values) override;
  absl::Status End(Session& session) override;
  absl::StatusOr<std::string> Interrupted(Session& session) override;

  const std::string& save_path() const { return save_path_; }
  // Saves now. True when a listener wants training to stop.
  absl::StatusOr<bool> Save(Session& session, int64_t step);

 private:
  const CheckpointSaverOptions options_;
  const std::string save_path_;
  StepTimer timer_;
  std::optional<int64_t> saved_step_;  // a save may be due and fail, or be interrupted
  GlobalStep step_;
  std::shared_ptr<EventWriter> writer_;
};

struct SummarySaverOptions {
  GlobalStepSource global_step;
  EventSink sink;
  Interval every;
  // The serialized summaries to fetch; asked at every run that writes them.
  std::function<absl::StatusOr<std::vector<Output>>()> summaries;
  const Clock* clock = nullptr;
};

// Writes summaries of the first run, then at intervals.
class SummarySaverHook : public SessionRunHook {
 public:
  explicit SummarySaverHook(SummarySaverOptions options);
  absl::Status Begin() override;
  absl::StatusOr<std::optional<RunArgs>> BeforeRun(RunContext& context) override;
  absl::Status AfterRun(RunContext& context, const RunValues& values) override;
  absl::Status End(Session& session) override;

 private:
  const SummarySaverOptions options_;
  StepTimer timer_;
  GlobalStep step_;
  std::shared_ptr<EventWriter> writer_;
  std::optional<int64_t> next_step_;
  bool requested_ = false;
};

struct StepCounterOptions {
  GlobalStepSource global_step;
  EventSink sink;
  Interval every = Interval::Steps(100);
  const Clock* clock = nullptr;
};

// Logs and writes "<global step>/sec" after every interval.
class StepCounterHook : public SessionRunHook {
 public:
  explicit StepCounterHook(StepCounterOptions options);
  absl::Status Begin() override;
  absl::StatusOr<std::optional<RunArgs>> BeforeRun(RunContext& context) override;
  absl::Status AfterRun(RunContext& context, const RunValues& values) override;

 private:
  absl::Status Record(const StepTimer::Elapsed& elapsed, int64_t step);
  void WarnIfStill(int64_t step);

  const StepCounterOptions options_;
  StepTimer timer_;
  GlobalStep step_;
  std::shared_ptr<EventWriter> writer_;
  std::optional<int64_t> last_step_;
  bool increases_ = false;  // it has been seen to
  int still_runs_ = 0;
};

// A RunMetadata message of what a traced run has recorded.
absl::StatusOr<std::string> SerializeRunMetadata(const RunMetadata& metadata,
                                                 bool with_partition_graphs);
// Writes the timeline of a run (timeline.h) to a file.
absl::StatusOr<std::string> SaveTimeline(const RunMetadata& metadata, const std::string& path);

struct ProfilerOptions {
  GlobalStepSource global_step;
  std::string output_dir;
  EventSink sink;  // empty: the events of output_dir
  Interval every;
  // Writes the timeline of a run and gives its serialized RunMetadata.
  std::function<absl::StatusOr<std::string>(const RunMetadata&, const std::string& path)> save =
      SaveTimeline;
  const Clock* clock = nullptr;
};

// Traces a run at intervals: a timeline file for chrome://tracing, and the same in the events.
class ProfilerHook : public SessionRunHook {
 public:
  explicit ProfilerHook(ProfilerOptions options);
  absl::Status Begin() override;
  absl::StatusOr<std::optional<RunArgs>> BeforeRun(RunContext& context) override;
  absl::Status AfterRun(RunContext& context, const RunValues& values) override;

 private:
  const ProfilerOptions options_;
  StepTimer timer_;
  GlobalStep step_;
  std::shared_ptr<EventWriter> writer_;
  std::optional<int64_t> next_step_;
  bool requested_ = false;
};

}  // namespace muster
