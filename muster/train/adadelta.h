// Steps in the units of the variable: averages of squared gradients and of squared updates.
#pragma once

#include "muster/train/apply_op.h"

namespace muster {

struct AdadeltaOptions {
  Operand rho = 0.95;
  Operand epsilon = 1e-8;
  bool use_locking = false;
  std::string name = "Adadelta";
};

class AdadeltaOptimizer : public ApplyOpOptimizer {
 public:
  explicit AdadeltaOptimizer(Operand learning_rate = 0.001, AdadeltaOptions options = {});
};

}  // namespace muster
