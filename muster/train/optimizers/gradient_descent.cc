#include "muster/train/optimizers/definition.h"

namespace muster {
namespace {

// Rows are subtracted one after the other, so that nothing has to be summed before.
absl::StatusOr<Node*> SubtractRows(DefinedOptimizer& descent, const Scope& scope,
                                   const IndexedSlices& gradient, const TrainVariable& variable) {
  const DType dtype = variable.dtype;
  Node* node = nullptr;
  if (variable.is_resource) {
    const Output negated = scope.Op("Neg", {gradient.values});
    const Output delta = Times(scope, negated, descent.Hyper(scope, "learning_rate", dtype));
    node = CallOp(scope, "ResourceScatterAdd",
                  {{"resource", variable}, {"indices", gradient.indices}, {"updates", delta}},
                  {{"dtype", dtype}});
  } else {
    const Output rate = descent.Hyper(scope, "learning_rate", dtype);
    const Output delta = Times(scope, gradient.values, rate);
    node = CallOp(scope, "ScatterSub",
                  {{"ref", variable}, {"indices", gradient.indices}, {"updates", delta}},
                  {{"use_locking", descent.use_locking()}});
  }
  RETURN_IF_ERROR(scope.status());
  return node;
}

}  // namespace

DEFINE_OPTIMIZER(GradientDescent) {
  optimizer.Doc("Gradient descent: variable -= learning_rate * gradient.")
      .Tensor("learning_rate", kRequired, "The learning rate.")
      .Rule({.op = "GradientDescent",
             .hypers = {{"learning_rate", "alpha"}},
             .dense_gradient = "delta"})
      .SparseDuplicates(SubtractRows);
}

}  // namespace muster
