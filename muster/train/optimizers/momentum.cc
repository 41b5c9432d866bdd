#include "muster/train/optimizers/definition.h"

namespace muster {

DEFINE_OPTIMIZER(Momentum) {
  optimizer
      .Doc(
          "Gradient descent with momentum: accumulation = momentum * accumulation + gradient; "
          "variable -= learning_rate * accumulation.")
      .Tensor("learning_rate", kRequired, "The learning rate.")
      .Tensor("momentum", kRequired, "The part of the accumulation that a step keeps.")
      .UseLocking()
      .Name()
      .Flag("use_nesterov", false,
            "Nesterov's momentum: the gradient counts as if it were taken after the step that the "
            "accumulation makes.")
      .Rule([](const DefinedOptimizer& momentum) {
        return ApplyRule{.op = "Momentum",
                         .slots = {{"momentum", "accum"}},
                         .hypers = {{"learning_rate", "lr"}, {"momentum", "momentum"}},
                         .attrs = {{"use_nesterov", momentum.Flag("use_nesterov")}}};
      });
}

}  // namespace muster
