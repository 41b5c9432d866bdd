// What a monitored session tells and asks its hooks: before it starts, around every run, and at its
// end. Users derive from SessionRunHook; the built-in ones are in hooks.h.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/types/span.h"

#include "muster/base/status.h"
#include "muster/client/session.h"

namespace muster {

class Coordinator;

// What one run is asked for: by the caller, or by a hook in addition.
struct RunArgs {
  std::vector<Output> fetches = {};
  std::vector<Node*> targets = {};
  std::vector<std::pair<Output, Tensor>> feeds = {};
  RunOptions options = {};
};

// What a hook gets back: values in the order of its own fetches, none if it asked for nothing.
struct RunValues {
  absl::Span<const Tensor> results;
  const RunOptions& options;
  const RunMetadata& metadata;
};

// One run, as its hooks see it.
class RunContext {
 public:
  RunContext(const RunArgs& original_args, Session& session)
      : original_args_(original_args), session_(session) {}

  const RunArgs& original_args() const { return original_args_; }
  // The session below the hooks: runs on it reach no hook.
  Session& session() const { return session_; }
  // The loop ends after this run.
  void RequestStop() { *stop_ = true; }
  bool stop_requested() const { return *stop_; }
  // Outlives the run, for front ends that hand the context out.
  const std::shared_ptr<std::atomic<bool>>& stop_flag() const { return stop_; }

 private:
  const RunArgs& original_args_;
  Session& session_;
  std::shared_ptr<std::atomic<bool>> stop_ = std::make_shared<std::atomic<bool>>(false);
};

// Called from the thread that runs the session. An error ends the run and reaches its caller;
// Aborted and Unavailable make a session that recovers start over.
class SessionRunHook {
 public:
  virtual ~SessionRunHook() = default;
  // Once, before the session exists: the graph may still grow.
  virtual absl::Status Begin() { return absl::OkStatus(); }
  // After every creation, also that of a recovery; the graph is final now.
  virtual absl::Status AfterCreateSession(const std::shared_ptr<Session>&,
                                          const std::shared_ptr<Coordinator>&) {
    return absl::OkStatus();
  }
  virtual absl::StatusOr<std::optional<RunArgs>> BeforeRun(RunContext&) { return std::nullopt; }
  virtual absl::Status AfterRun(RunContext&, const RunValues&) { return absl::OkStatus(); }
  // Once, when the loop has ended without an error.
  virtual absl::Status End(Session&) { return absl::OkStatus(); }
  // Instead of End, when the user has interrupted the loop and progress should be saved. Returns a
  // short description of what was saved; empty: nothing.
  virtual absl::StatusOr<std::string> Interrupted(Session&) { return std::string(); }
};

}  // namespace muster
