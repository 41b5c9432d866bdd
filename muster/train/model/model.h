// What a training program has made: C++'s place for what Python keeps in collections. A program
// adds variables, summaries and queue runners here as it builds its network, and gives the whole to
// MonitoredTrainingSession.
//
//   Model model;
//   model.AddGlobalStep(scope);
//   const TrainVariable w = model.AddVariable(scope, "w", GlorotUniform({784, 10}));
//   ...
//   AdamOptimizer adam(0.001);
//   ASSIGN_OR_RETURN(Node* train, model.Minimize(scope, loss, adam));
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "muster/base/status.h"
#include "muster/train/model/variables.h"
#include "muster/train/optimizers/optimizer.h"
#include "muster/train/replicas/all_reduce.h"
#include "muster/train/replicas/sync_replicas.h"

namespace muster {

class QueueRunner;
class ShardQueue;

struct MinimizeOptions {
  // Set: one update takes the mean of several workers' gradients.
  std::optional<SyncReplicasOptions> sync = {};
  // Set: every worker has the whole model, and gradients are averaged over all of them.
  std::optional<AllReduceOptions> all_reduce = {};
  // For variables that stay at a parameter server all the same. Another one than the model's.
  Optimizer* staying_optimizer = nullptr;
  ComputeOptions compute = {};
};

// Lists may be filled by hand as well.
struct Model {
  std::vector<TrainVariable> variables;        // saved, shared by all workers; the slots too
  std::vector<TrainVariable> trainable;        // those of them that Minimize changes
  std::vector<TrainVariable> local_variables;  // of this worker
  std::vector<Node*> table_initializers;
  std::vector<Output> summaries;
  std::vector<std::shared_ptr<QueueRunner>> queue_runners;
  std::vector<std::shared_ptr<ShardQueue>> shard_queues;  // saved; shared by all workers
  std::optional<TrainVariable> global_step;  // needed by what saves or counts; also in `variables`
  std::shared_ptr<SyncReplicas> sync;        // its hook is then one of the session's
  std::shared_ptr<AllReduce> all_reduce;     // so is its

  // --- What makes something and keeps it here. Errors go to the scope, as those of Scope::Op.
  TrainVariable AddVariable(const Scope& scope, absl::string_view name, const InitialValue& initial,
                            const VariableOptions& options = {});
  TrainVariable AddGlobalStep(const Scope& scope);
  // A curve in TensorBoard, under the scope's name and `name`.
  Output AddScalarSummary(const Scope& scope, absl::string_view name, Output value);

  // The node of one training step: gradients of `loss` by the trainable variables, applied by the
  // optimizer, one more global step. Keeps the optimizer's slots. FailedPrecondition when workers
  // are to be in step and there is no global step.
  absl::StatusOr<Node*> Minimize(const Scope& scope, Output loss, Optimizer& optimizer,
                                 const MinimizeOptions& options = {});
};

}  // namespace muster
