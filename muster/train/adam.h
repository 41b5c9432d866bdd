// Averages of gradients and of their squares, both corrected for starting at zero.
#pragma once

#include "muster/train/apply_op.h"

namespace muster {

struct AdamOptions {
  Operand beta1 = 0.9;
  Operand beta2 = 0.999;
  Operand epsilon = 1e-8;
  bool use_locking = false;
  std::string name = "Adam";
};

class AdamOptimizer : public ApplyOpOptimizer {
 public:
  explicit AdamOptimizer(Operand learning_rate = 0.001, AdamOptions options = {});
  absl::Status CreateSlots(const Scope& scope, absl::Span<const TrainVariable> variables) override;
  // All rows decay, those of the gradient get their share.
  absl::StatusOr<Node*> ApplySparse(const Scope& scope, const IndexedSlices& gradient,
                                    const TrainVariable& variable) override;
  // The powers of the betas move on when every variable has used them.
  absl::StatusOr<Node*> Finish(const Scope& scope, absl::Span<Node* const> updates,
                               absl::string_view name) override;

 protected:
  absl::StatusOr<Arguments> Numbers(const Scope& scope, DType dtype) override;

 private:
  // slot = slot * beta, then `rows` added at the indices.
  absl::StatusOr<Output> DecayAndAdd(const Scope& scope, const TrainVariable& slot, Output beta,
                                     Output rows, Output indices);
};

}  // namespace muster
