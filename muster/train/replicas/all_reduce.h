// Training without parameter servers: every worker has the whole model, and gradients are averaged
// over all of them (all-reduce) before each applies the same update. Or, as a second way, every
// worker trains by itself and the parameters are averaged now and then.
//
//   AllReduce all({});
//   ASSIGN_OR_RETURN(Node* train, all.ApplyGradients(scope, gradients, step, parts));
//
// Variables on another task (on a parameter server: large embeddings, say) are not copied to every
// worker: their gradients are accumulated there, and rank 0 applies the mean. No worker's step ends
// before that.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"

#include "muster/base/status.h"
#include "muster/train/model/variables.h"
#include "muster/train/optimizers/optimizer.h"

namespace muster {

struct AllReduceOptions {
  std::string name = "all_reduce";
  // Gradients are batched up to this many bytes; larger ones travel alone.
  int64_t bucket_bytes = int64_t{1} << 20;
  // 0: the gradients of every step are averaged. Otherwise the parameters are, every
  // `average_every` steps; gradients are not.
  int64_t average_every = 0;
  // Which variables stay at their task instead of being copied to all. None: those on another job
  // or task than the step.
  std::function<bool(const TrainVariable&)> stays = {};
};

// What belongs to the program around it.
struct AllReduceParts {
  // The wrapped optimizer's nodes for these gradients, with the increment of the step if asked for.
  using Apply = std::function<absl::StatusOr<Node*>(
      const Scope&, absl::Span<const GradientAndVariable>, bool counts_step)>;
  Apply apply;
  // The same of an optimizer for variables that stay where they are. Another object, since an
  // optimizer may have state of its own that moves on with every update.
  Apply apply_staying;
  // An int32 variable of this worker where a front end makes its own; MakeVariable otherwise.
  std::function<absl::StatusOr<TrainVariable>(const Scope&, const std::string& name,
                                              int32_t initial)>
      make_local;
};

// The nodes. The members are decided when they run: AllReduceHook forms the group and sets its
// variables. Thread-compatible.
class AllReduce {
 public:
  explicit AllReduce(AllReduceOptions options);

  // The node that every worker runs. Once for each object.
  absl::StatusOr<Node*> ApplyGradients(const Scope& scope,
                                       absl::Span<const GradientAndVariable> gradients,
                                       const TrainVariable& global_step,
                                       const AllReduceParts& parts);
  // Nodes that give the variables' values to all (run by one rank), and that take them (run by the
  // others). Requires: ApplyGradients.
  struct Broadcast {
    Node* send = nullptr;
    Node* receive = nullptr;
    Node* meet = nullptr;  // ends when all ranks have come to it
  };
  absl::StatusOr<Broadcast> AddBroadcast(const Scope& scope,
                                         absl::Span<const TrainVariable> variables);
  // Initializes what has no value yet: a new session must not overwrite the model. With or without
  // the variables that stay, which are the chief's to initialize.
  absl::StatusOr<Node*> AddGentleInitializer(const Scope& scope,
                                             absl::Span<const TrainVariable> variables,
                                             bool with_staying) const;
  // Whether a variable is copied to all workers.
  bool IsReplicated(const TrainVariable& variable) const;

  const AllReduceOptions& options() const { return options_; }
  const TrainVariable& global_step() const { return global_step_; }
  // Of the group: set by the hook.
  const TrainVariable& group_key() const { return group_key_; }
  const TrainVariable& group_size() const { return group_size_; }
  const TrainVariable& group_rank() const { return group_rank_; }
  std::vector<TrainVariable> local_variables() const {
    return {group_key_, group_size_, group_rank_};
  }
  Node* train() const { return train_; }
  // Since this worker has been in a group, its model is newer than any checkpoint.
  void NoteTrained() { has_trained_ = true; }
  bool has_trained() const { return has_trained_; }
  // More than 0 on all ranks at once: a task waits to take part. Fetched with the step.
  Output awaited() const { return awaited_; }
  // How many gradients each accumulator holds, and nodes that discard one of each.
  struct Accumulator {
    Output count;
    Node* drop = nullptr;
    Node* set_step = nullptr;
  };
  const std::vector<Accumulator>& accumulators() const { return accumulators_; }

 private:
  // A tensor to be averaged.
  struct Part {
    Output value;
    Shape shape;
  };
  struct Bucket {
    std::vector<size_t> parts;
    int64_t bytes = 0;
  };
  absl::Status MakeLocals(const Scope& scope, const AllReduceParts& parts);
  absl::StatusOr<Node*> StepTogether(const Scope& scope,
                                     absl::Span<const GradientAndVariable> gradients,
                                     const AllReduceParts& parts);
  absl::StatusOr<Node*> StepAlone(const Scope& scope,
                                  absl::Span<const GradientAndVariable> gradients,
                                  const AllReduceParts& parts);
  // The mean gradients of variables that stay, taken by rank 0 from accumulators into which every
  // rank has put its own.
  struct Staying {
    std::vector<Node*> pushes;
    std::vector<GradientAndVariable> entries;
    std::vector<std::function<Gradient(const Scope&)>> takes;
  };
  absl::Status Accumulate(const Scope& scope, const GradientAndVariable& entry, Staying& staying);
  absl::StatusOr<Node*> ApplyStaying(const Scope& scope, const Staying& staying,
                                     const AllReduceParts& parts);
  // The mean over the group of every part, and of the flag in awaited_.
  absl::StatusOr<std::vector<Output>> Means(const Scope& scope, const std::vector<Part>& parts);
  std::vector<Bucket> Buckets(const std::vector<Part>& parts) const;
  Output Reduce(const Scope& scope, Output value, const char* merge_op, const char* final_op);
  Output Awaited(const Scope& scope, DType dtype) const;

  const AllReduceOptions options_;
  TrainVariable global_step_;
  TrainVariable group_key_;
  TrainVariable group_size_;
  TrainVariable group_rank_;
  std::string own_device_;
  Node* train_ = nullptr;
  Output awaited_;
  std::vector<Accumulator> accumulators_;
  int32_t last_instance_ = 0;
  bool has_trained_ = false;
};

}  // namespace muster
