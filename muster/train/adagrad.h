// Learning rates that shrink with the squares of the gradients so far: Adagrad and Adagrad with
// dual averaging.
#pragma once

#include "muster/train/apply_op.h"

namespace muster {

struct AdagradOptions {
  double initial_accumulator_value = 0.1;  // above 0
  bool use_locking = false;
  std::string name = "Adagrad";
};

class AdagradOptimizer : public ApplyOpOptimizer {
 public:
  explicit AdagradOptimizer(Operand learning_rate, AdagradOptions options = {});
};

struct AdagradDAOptions {
  double initial_gradient_squared_accumulator_value = 0.1;  // above 0
  Operand l1_regularization_strength = 0.0;
  Operand l2_regularization_strength = 0.0;
  bool use_locking = false;
  std::string name = "AdagradDA";
};

class AdagradDAOptimizer : public ApplyOpOptimizer {
 public:
  AdagradDAOptimizer(Operand learning_rate, Operand global_step, AdagradDAOptions options = {});
  absl::Status CreateSlots(const Scope& scope, absl::Span<const TrainVariable> variables) override;
  absl::Status Prepare(const Scope& scope) override;
  // The second half of Prepare: the step that is being taken, beside the learning rate.
  absl::Status PrepareStep(const Scope& scope, const Operand& global_step);

 protected:
  absl::StatusOr<Arguments> Numbers(const Scope& scope, DType dtype) override;

 private:
  const double initial_value_;
  const Operand global_step_;
  const Operand l1_;
  const Operand l2_;
  Output step_taken_;
};

}  // namespace muster
