// MonitoredTrainingSession: a monitored session with the hooks that training usually has.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "muster/train/hooks/hooks.h"
#include "muster/train/loop/monitored_session.h"
#include "muster/train/loop/scaffold.h"
#include "muster/train/replicas/all_reduce_hook.h"

namespace muster {

struct MonitoredTrainingSessionOptions {
  // Where a session runs: a graph, in this process unless `session` has a master. With
  // `session.interrupted` set (see interruption.h) a signal ends the loop.
  Graph* graph = nullptr;
  SessionOptions session;
  // The chief initializes, restores, saves and writes summaries; the others wait for it.
  bool is_chief = true;
  std::string checkpoint_dir;  // "": nothing is saved
  std::string summary_dir;     // "": checkpoint_dir
  Model model;
  std::shared_ptr<Scaffold> scaffold;  // null: one with all defaults
  // The loop ends when the global step is here. Needs model.global_step.
  std::optional<int64_t> last_step;
  // The members, where the model has `all_reduce`.
  AllReduceHookOptions all_reduce;
  // Besides those that the fields below ask for, and the one of the model's `sync` or `all_reduce`.
  std::vector<std::shared_ptr<SessionRunHook>> hooks;
  std::vector<std::shared_ptr<SessionRunHook>> chief_only_hooks;
  // Nothing set: never.
  Interval save_checkpoint = Interval::Every(absl::Minutes(10));
  Interval save_summaries = Interval::Steps(100);
  int64_t log_step_count_steps = 100;  // 0: never
  absl::Duration stop_grace_period = absl::Seconds(120);
  absl::Duration max_wait = absl::Seconds(7200);
};

// Nodes are added to the graph here and by hooks; it must not grow afterwards.
absl::StatusOr<std::unique_ptr<MonitoredSession>> MonitoredTrainingSession(
    MonitoredTrainingSessionOptions options);

// The global step for hooks: its nodes are made when the first of them begins, the same for all.
GlobalStepSource SharedGlobalStep(const Scope& scope, const TrainVariable& variable);
// Makes sessions on `graph`.
SessionFactory SessionsOn(const Graph& graph, SessionOptions options);
// A checkpoint of `saver` with the meta graph of the session's graph beside it.
std::function<absl::Status(Session&, const std::string&, int64_t)> SaveWith(
    std::shared_ptr<Saver> saver);
// The session's graph as graph.pbtxt in `folder` and in the events, there with a meta graph too.
std::function<absl::Status(Session&, EventWriter&)> DescribeWith(std::string folder,
                                                                 std::shared_ptr<Saver> saver);

}  // namespace muster
