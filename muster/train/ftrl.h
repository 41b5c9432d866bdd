// Follow the regularized leader.
#pragma once

#include "muster/train/apply_op.h"

namespace muster {

struct FtrlOptions {
  double learning_rate_power = -0.5;       // at most 0
  double initial_accumulator_value = 0.1;  // at least 0, like all below
  double l1_regularization_strength = 0.0;
  double l2_regularization_strength = 0.0;
  double l2_shrinkage_regularization_strength = 0.0;
  bool use_locking = false;
  std::string name = "Ftrl";
  std::string accum_name = {};  // the optimizer's name where empty
  std::string linear_name = {};
};

class FtrlOptimizer : public ApplyOpOptimizer {
 public:
  explicit FtrlOptimizer(Operand learning_rate, FtrlOptions options = {});
  absl::Status CreateSlots(const Scope& scope, absl::Span<const TrainVariable> variables) override;

 private:
  const double initial_value_;
  const std::string accum_name_;
  const std::string linear_name_;
};

}  // namespace muster
