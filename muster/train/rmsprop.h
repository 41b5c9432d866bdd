// Gradients over the root of the average of their squares, with momentum.
#pragma once

#include "muster/train/apply_op.h"

namespace muster {

struct RMSPropOptions {
  Operand decay = 0.9;
  Operand momentum = 0.0;
  Operand epsilon = 1e-10;
  bool use_locking = false;
  bool centered = false;  // the variance instead of the mean square
  std::string name = "RMSProp";
};

class RMSPropOptimizer : public ApplyOpOptimizer {
 public:
  explicit RMSPropOptimizer(Operand learning_rate, RMSPropOptions options = {});
};

}  // namespace muster
