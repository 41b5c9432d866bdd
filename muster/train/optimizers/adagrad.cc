#include "muster/train/optimizers/definition.h"

namespace muster {

DEFINE_OPTIMIZER(Adagrad) {
  optimizer
      .Doc(
          "Adagrad: learning rates that shrink with the sum of the squares of the gradients so "
          "far.")
      .Tensor("learning_rate", kRequired, "The learning rate.")
      .Number("initial_accumulator_value", 0.1, "Where the sums start; above 0.")
      .Check([](const DefinedOptimizer& adagrad) {
        return CheckPositive(adagrad, "initial_accumulator_value");
      })
      .Rule([](const DefinedOptimizer& adagrad) {
        const double initial = adagrad.Number("initial_accumulator_value");
        return ApplyRule{.op = "Adagrad",
                         .slots = {{"accumulator", "accum", SlotSpec::Filled{initial}}},
                         .hypers = {{"learning_rate", "lr"}}};
      });
}

}  // namespace muster
