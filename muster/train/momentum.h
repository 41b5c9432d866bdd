// accumulation = momentum * accumulation + gradient; variable -= learning_rate * accumulation.
#pragma once

#include "muster/train/apply_op.h"

namespace muster {

struct MomentumOptions {
  bool use_locking = false;
  std::string name = "Momentum";
  bool use_nesterov = false;
};

class MomentumOptimizer : public ApplyOpOptimizer {
 public:
  MomentumOptimizer(Operand learning_rate, Operand momentum, MomentumOptions options = {});
};

}  // namespace muster
