// variable -= learning_rate * gradient.
#pragma once

#include "muster/train/apply_op.h"

namespace muster {

struct GradientDescentOptions {
  bool use_locking = false;
  std::string name = "GradientDescent";
};

class GradientDescentOptimizer : public ApplyOpOptimizer {
 public:
  explicit GradientDescentOptimizer(Operand learning_rate, GradientDescentOptions options = {});
  // Rows are subtracted one after the other, so that nothing has to be summed before.
  absl::StatusOr<Node*> ApplySparseDuplicates(const Scope& scope, const IndexedSlices& gradient,
                                              const TrainVariable& variable) override;
};

}  // namespace muster
