// Optimizers: gradients of a loss, and the nodes that apply them to variables, which ApplyGradients
// emits with TensorFlow's names and in its order. Those of the library are described with
// definition.h, in a file each; a program's own derive from Optimizer.
//
//   AdamOptimizer adam(0.001);
//   ASSIGN_OR_RETURN(Node* train, adam.Minimize(scope, loss, {w, b}, {.global_step = step}));
//   Node* init = Initializer(scope, {w, b, step, adam.variables()...});
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"

#include "muster/graph/gradients/gradients.h"
#include "muster/train/model/operand.h"
#include "muster/train/model/variables.h"
#include "muster/train/optimizers/slots.h"

namespace muster {

struct GradientAndVariable {
  Gradient gradient;
  TrainVariable variable;
};

// When gradients may be used: at once, when all of one op are there, when all are there.
enum class GateGradients { kNone = 0, kOp = 1, kGraph = 2 };

struct ComputeOptions {
  GateGradients gate = GateGradients::kOp;
  AggregationMethod aggregation_method = AggregationMethod::kAddN;
  bool colocate_gradients_with_ops = false;
  Gradient grad_loss = {};
};

struct ApplyOptions {
  std::optional<TrainVariable> global_step = {};  // one more after every update
  std::string name = {};                          // the optimizer's where empty
};

// Thread-compatible. Subclasses say which slots a variable has and which nodes update it.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  const std::string& name() const { return name_; }
  bool use_locking() const { return use_locking_; }

  // One entry per variable; its gradient is None where the loss does not depend on it.
  // InvalidArgument for no variables and for types without gradients.
  absl::StatusOr<std::vector<GradientAndVariable>> ComputeGradients(
      const Scope& scope, Output loss, absl::Span<const TrainVariable> variables,
      const ComputeOptions& options = {}) const;
  // The node that has run when all variables (and the global step) are updated. Entries without a
  // gradient are left out; InvalidArgument when none has one.
  absl::StatusOr<Node*> ApplyGradients(const Scope& scope,
                                       absl::Span<const GradientAndVariable> gradients,
                                       const ApplyOptions& options = {});
  absl::StatusOr<Node*> Minimize(const Scope& scope, Output loss,
                                 absl::Span<const TrainVariable> variables,
                                 const ApplyOptions& apply = {},
                                 const ComputeOptions& compute = {});

  // --- The optimizer's own state
  // Makes and keeps slots; GraphSlots unless another was given.
  SlotMaker& slots() const { return slots_ != nullptr ? *slots_ : *graph_slots_; }
  void UseSlots(SlotMaker* slots) { slots_ = slots; }
  absl::StatusOr<TrainVariable> Slot(const TrainVariable& variable, absl::string_view slot) const {
    return slots().Get(variable, slot);
  }
  // What GraphSlots has made.
  const std::vector<TrainVariable>& variables() const { return graph_slots_->variables(); }

  // --- Hyperparameters: numbers, tensors or variables. Prepare turns them into tensors.
  // NotFound where the optimizer has none of that name.
  absl::Status SetValue(absl::string_view name, Operand value);
  absl::StatusOr<Operand> GetValue(absl::string_view name) const;
  absl::Status SetTensor(absl::string_view name, Output tensor);
  absl::StatusOr<Output> GetTensor(absl::string_view name) const;

  // --- What subclasses override. Called by ApplyGradients in this order; public since a front
  // end's own protocol calls the parts one by one.
  virtual absl::Status CreateSlots(const Scope& scope, absl::Span<const TrainVariable> variables);
  virtual absl::Status Prepare(const Scope& scope);
  // Dispatches to one of the three below by the kind of gradient.
  virtual absl::StatusOr<Node*> Update(const Scope& scope, const Gradient& gradient,
                                       const TrainVariable& variable);
  virtual absl::StatusOr<Node*> ApplyDense(const Scope& scope, Output gradient,
                                           const TrainVariable& variable) = 0;
  // Requires: no index twice.
  virtual absl::StatusOr<Node*> ApplySparse(const Scope& scope, const IndexedSlices& gradient,
                                            const TrainVariable& variable) = 0;
  // Sums what belongs to one index, then ApplySparse.
  virtual absl::StatusOr<Node*> ApplySparseDuplicates(const Scope& scope,
                                                      const IndexedSlices& gradient,
                                                      const TrainVariable& variable);
  virtual absl::StatusOr<Node*> Finish(const Scope& scope, absl::Span<Node* const> updates,
                                       absl::string_view name);

 protected:
  Optimizer(std::string name, bool use_locking);
  void AddHyperparameter(std::string name, Operand value);
  // The tensor of a hyperparameter, cast to `dtype` with nodes in `scope`. Requires: Prepare ran.
  Output Hyper(const Scope& scope, absl::string_view name, DType dtype) const;

 private:
  struct Hyperparameter {
    std::string name;  // also of its constant: "learning_rate"
    Operand value;
    Output tensor;
  };
  absl::StatusOr<size_t> Find(absl::string_view name) const;

  std::string name_;
  bool use_locking_;
  std::vector<Hyperparameter> hyperparameters_;
  std::unique_ptr<GraphSlots> graph_slots_;
  SlotMaker* slots_ = nullptr;
};

// Rows of one index summed up: "Unique", "Shape", "strided_slice", "UnsortedSegmentSum".
IndexedSlices SumDuplicates(const Scope& scope, const IndexedSlices& gradient);

// The gradients, each available only when all are: tf.tuple.
absl::StatusOr<std::vector<Gradient>> GateAll(const Scope& scope,
                                              absl::Span<const Gradient> gradients);

}  // namespace muster
