#include "muster/train/optimizers/definition.h"

namespace muster {

DEFINE_OPTIMIZER(ProximalGradientDescent) {
  optimizer.Doc("Gradient descent with proximal l1 and l2 terms.")
      .Tensor("learning_rate", kRequired, "The learning rate.")
      .Tensor("l1_regularization_strength", 0.0, "At least 0.")
      .Tensor("l2_regularization_strength", 0.0, "At least 0.")
      .Rule({.op = "ProximalGradientDescent",
             .hypers = {{"learning_rate", "alpha"},
                        {"l1_regularization_strength", "l1"},
                        {"l2_regularization_strength", "l2"}},
             .dense_gradient = "delta"});
}

}  // namespace muster
