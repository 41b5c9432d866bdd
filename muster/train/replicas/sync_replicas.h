// Synchronous training: gradients of several workers are averaged before one update. Workers hand
// their gradients to accumulators beside the variables and wait for a token; the chief takes the
// means, applies them and gives out the tokens of the next step.
//
//   SyncReplicas sync({.replicas_to_aggregate = 2});
//   ASSIGN_OR_RETURN(Node* train, sync.ApplyGradients(scope, gradients, step, parts));
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"

#include "muster/base/status.h"
#include "muster/train/loop/queue_runner.h"
#include "muster/train/model/variables.h"
#include "muster/train/optimizers/optimizer.h"

namespace muster {

struct SyncReplicasOptions {
  int replicas_to_aggregate = 1;  // gradients for one update
  // Workers that take part; more than the former are backups. None: the same number.
  std::optional<int> total_num_replicas = {};
  std::string name = "sync_replicas";
};

// What belongs to the program around the synchronization.
struct SyncReplicasParts {
  // The wrapped optimizer's nodes for the mean gradients; they move the global step on.
  std::function<absl::StatusOr<Node*>(const Scope&, absl::Span<const GradientAndVariable>)> apply;
  // All global variables: workers start when they are initialized.
  std::vector<TrainVariable> global_variables;
  // The local step where a front end makes its own variables; MakeVariable otherwise.
  std::function<absl::StatusOr<TrainVariable>(const Scope&, DType)> make_local_step;
  // Moving averages, updated after each step. May be empty.
  std::function<absl::StatusOr<Node*>(const Scope&)> average;
};

// Thread-compatible. Nodes and names are TensorFlow's, so that a stock worker can take part.
class SyncReplicas {
 public:
  explicit SyncReplicas(SyncReplicasOptions options);

  // The node that every worker runs. InvalidArgument without variables. Once for each object.
  absl::StatusOr<Node*> ApplyGradients(const Scope& scope,
                                       absl::Span<const GradientAndVariable> gradients,
                                       const TrainVariable& global_step,
                                       const SyncReplicasParts& parts);
  // Fills the token queue at the start; -1: one token for each gradient of an update.
  // InvalidArgument for fewer than the first step needs. Requires: ApplyGradients.
  absl::StatusOr<Node*> InitTokens(const Scope& scope, int num_tokens = -1) const;
  // Gives every worker two more tokens, of the current step: when the chief leaves, a worker would
  // wait for ever in the step in which it has read an older global step, and in the next one, in
  // which it sees that it is time to end. The chief's queue runner does so at a clean stop.
  absl::Status ReleaseWorkers(Session& session) const;
  // For another worker that leaves: gives out as many tokens as an update, of the current step. One
  // stands for the gradients of the worker, for which the others would wait for ever, also in a
  // last step that began with an older global step. The rest is surplus as at the start: it is used
  // up by gradients that come too late.
  absl::Status ReturnTokens(Session& session) const;

  const std::string& name() const { return options_.name; }
  const TrainVariable& local_step() const { return local_step_; }
  Node* local_step_init() const { return local_step_init_; }
  Node* chief_init() const { return chief_init_; }
  Output ready_for_local_init() const { return ready_for_local_init_; }
  // What the chief runs beside its own steps; ChiefQueueRunner adds what it does at its end.
  const QueueRunnerDef& chief_queue_runner() const { return chief_queue_runner_; }
  // Keeps `sync`.
  static QueueRunnerDef ChiefQueueRunner(std::shared_ptr<const SyncReplicas> sync);
  Output token_queue() const { return token_queue_; }
  Node* train() const { return train_; }
  // Whether this process does the chief's work.
  bool chief_started() const { return chief_started_.load(); }
  void NoteChiefStarted() const { chief_started_.store(true); }

 private:
  struct Accumulator {
    Output handle;
    bool is_sparse = false;
    std::string device;
  };
  absl::StatusOr<Gradient> AddAccumulator(const Scope& scope, const GradientAndVariable& entry);
  Gradient AddDense(const Scope& scope, const std::string& shared_name, Output gradient,
                    const TrainVariable& variable);
  Gradient AddSparse(const Scope& scope, const std::string& shared_name,
                     const IndexedSlices& gradient);
  struct Tokens {
    Output values;
    Node* enqueue = nullptr;
  };
  absl::StatusOr<Tokens> EnqueueTokens(const Scope& scope, int count) const;
  absl::StatusOr<Node*> AddChiefInit(const Scope& scope) const;
  // The tokens of so many updates, of the current step.
  absl::Status GiveTokens(Session& session, int updates) const;
  int total() const { return options_.total_num_replicas.value_or(options_.replicas_to_aggregate); }
  int tokens_per_update() const { return std::max(total(), options_.replicas_to_aggregate); }

  const SyncReplicasOptions options_;
  TrainVariable global_step_;
  TrainVariable local_step_;
  Node* local_step_init_ = nullptr;
  Node* chief_init_ = nullptr;
  Node* train_ = nullptr;
  mutable std::atomic<bool> chief_started_{false};
  Output ready_for_local_init_;
  Output token_queue_;
  Tokens tokens_;
  std::vector<Accumulator> accumulators_;
  std::vector<Node*> apply_nodes_;
  QueueRunnerDef chief_queue_runner_;
};

}  // namespace muster
