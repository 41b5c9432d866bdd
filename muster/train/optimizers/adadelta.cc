#include "muster/train/optimizers/definition.h"

namespace muster {

DEFINE_OPTIMIZER(Adadelta) {
  optimizer
      .Doc(
          "Adadelta: steps in the units of the variable, from averages of squared gradients and "
          "of squared updates.")
      .Tensor("learning_rate", 0.001, "The learning rate; 1.0 is the method as published.")
      .KeptAs("_lr", "_lr_t")
      .Tensor("rho", 0.95, "The decay of the averages.")
      .KeptAs("_rho", "_rho_t")
      .Tensor("epsilon", 1e-8, "Added to the averages before their roots are taken.")
      .KeptAs("_epsilon", "_epsilon_t")
      .Rule({.op = "Adadelta",
             .slots = {{"accum", "accum"}, {"accum_update", "accum_update"}},
             .hypers = {{"learning_rate", "lr", "lr"}, {"rho", "rho"}, {"epsilon", "epsilon"}}});
}

}  // namespace muster
