// Optimizers whose update is one Apply op per variable: they only declare its slots and numbers.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "muster/train/optimizer.h"

namespace muster {

class ApplyOpOptimizer : public Optimizer {
 public:
  absl::StatusOr<Node*> ApplyDense(const Scope& scope, Output gradient,
                                   const TrainVariable& variable) override;
  absl::StatusOr<Node*> ApplySparse(const Scope& scope, const IndexedSlices& gradient,
                                    const TrainVariable& variable) override;
  // The slots that are zeros or filled with one value; others override this.
  absl::Status CreateSlots(const Scope& scope, absl::Span<const TrainVariable> variables) override;

 protected:
  struct SlotArgument {
    std::string slot;
    std::string argument;  // of the op
    std::variant<SlotSpec::Zeros, SlotSpec::Filled> initial;
  };
  struct HyperArgument {
    std::string name;
    std::string argument;
  };
  using Arguments = std::vector<std::pair<std::string, Operand>>;

  ApplyOpOptimizer(std::string name, bool use_locking) : Optimizer(std::move(name), use_locking) {}

  // Arguments besides the variable, its slots and the gradient, with their casts made in `scope`.
  // Default: the declared hyperparameters.
  virtual absl::StatusOr<Arguments> Numbers(const Scope& scope, DType dtype);

  std::string op_;  // what follows "Apply" in its name
  std::vector<SlotArgument> slots_;
  std::vector<HyperArgument> hypers_;
  std::string dense_gradient_ = "grad";
  AttrMap attrs_;

 private:
  absl::StatusOr<Node*> Apply(const Scope& scope, absl::string_view kind,
                              const TrainVariable& variable, Arguments gradient, DType dtype);
};

// A constant of the variable's shape, beside the variable: where a slot starts that is not filled
// by an initializer.
absl::StatusOr<Output> FilledLike(const Scope& scope, const TrainVariable& variable, double value);

}  // namespace muster
