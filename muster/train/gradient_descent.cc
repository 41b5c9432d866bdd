#include "muster/train/gradient_descent.h"

#include <utility>

namespace muster {

GradientDescentOptimizer::GradientDescentOptimizer(Operand learning_rate,
                                                   GradientDescentOptions options)
    : ApplyOpOptimizer(std::move(options.name), options.use_locking) {
  AddHyperparameter("learning_rate", std::move(learning_rate));
  op_ = "GradientDescent";
  hypers_ = {{"learning_rate", "alpha"}};
  dense_gradient_ = "delta";
}

absl::StatusOr<Node*> GradientDescentOptimizer::ApplySparseDuplicates(
    const Scope& scope, const IndexedSlices& gradient, const TrainVariable& variable) {
  const DType dtype = variable.dtype;
  Node* node = nullptr;
  if (variable.is_resource) {
    const Output negated = scope.Op("Neg", {gradient.values});
    const Output delta = Times(scope, negated, Hyper(scope, "learning_rate", dtype));
    node = CallOp(scope, "ResourceScatterAdd",
                  {{"resource", variable}, {"indices", gradient.indices}, {"updates", delta}},
                  {{"dtype", dtype}});
  } else {
    const Output delta = Times(scope, gradient.values, Hyper(scope, "learning_rate", dtype));
    node = CallOp(scope, "ScatterSub",
                  {{"ref", variable}, {"indices", gradient.indices}, {"updates", delta}},
                  {{"use_locking", use_locking()}});
  }
  RETURN_IF_ERROR(scope.status());
  return node;
}

}  // namespace muster
