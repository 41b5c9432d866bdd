// The hook that a worker of synchronous training needs.
#pragma once

#include <memory>

#include "muster/train/hooks/hook.h"
#include "muster/train/hooks/runs_node.h"
#include "muster/train/replicas/sync_replicas.h"

namespace muster {

// Sets the worker's local step when its session is made. The chief's also sets the accumulators,
// gives out the first tokens and starts the updates; the others return tokens at their end.
class SyncReplicasHook : public SessionRunHook {
 public:
  // `runner` does the chief's work; null: one of its own.
  SyncReplicasHook(std::shared_ptr<const SyncReplicas> sync, Scope scope, bool is_chief,
                   int num_tokens = -1, std::shared_ptr<QueueRunner> runner = nullptr);
  absl::Status Begin() override;
  absl::Status AfterCreateSession(const std::shared_ptr<Session>& session,
                                  const std::shared_ptr<Coordinator>& coordinator) override;
  absl::Status End(Session& session) override;

 private:
  const std::shared_ptr<const SyncReplicas> sync_;
  const Scope scope_;
  const bool is_chief_;
  const int num_tokens_;
  std::shared_ptr<QueueRunner> runner_;
  Node* init_tokens_ = nullptr;
};

// For a chief whose program forgot to start the updates: its steps would wait for ever for a token.
// After some seconds the session is closed and its coordinator stopped with an error that says what
// is missing. Steps are announced by one thread at a time.
class MissingChiefWatch {
 public:
  explicit MissingChiefWatch(std::shared_ptr<const SyncReplicas> sync,
                             absl::Duration patience = absl::Seconds(5));
  ~MissingChiefWatch();
  void Start(const std::shared_ptr<Session>& session,
             const std::shared_ptr<Coordinator>& coordinator);
  // Around every step, with what it asks for.
  void StepStarts(const std::vector<const Node*>& asked);
  void StepEnds();
  // Whether updates are applied: there is nothing left to watch.
  bool chief_started() const { return sync_->chief_started(); }

 private:
  struct Watch;
  const std::shared_ptr<const SyncReplicas> sync_;
  const absl::Duration patience_;
  std::shared_ptr<Watch> watch_;
  RunsNode trains_;
};

// The same for sessions with hooks.
class MissingChiefHook : public SessionRunHook {
 public:
  explicit MissingChiefHook(std::shared_ptr<const SyncReplicas> sync,
                            absl::Duration patience = absl::Seconds(5));
  absl::Status AfterCreateSession(const std::shared_ptr<Session>& session,
                                  const std::shared_ptr<Coordinator>& coordinator) override;
  absl::StatusOr<std::optional<RunArgs>> BeforeRun(RunContext& context) override;
  absl::Status AfterRun(RunContext& context, const RunValues& values) override;

 private:
  MissingChiefWatch watch_;
};

}  // namespace muster
