#include "muster/train/adadelta.h"

#include <utility>

namespace muster {

AdadeltaOptimizer::AdadeltaOptimizer(Operand learning_rate, AdadeltaOptions options)
    : ApplyOpOptimizer(std::move(options.name), options.use_locking) {
  AddHyperparameter("lr", std::move(learning_rate));
  AddHyperparameter("rho", std::move(options.rho));
  AddHyperparameter("epsilon", std::move(options.epsilon));
  op_ = "Adadelta";
  slots_ = {{"accum", "accum", SlotSpec::Zeros()},
            {"accum_update", "accum_update", SlotSpec::Zeros()}};
  hypers_ = {{"lr", "lr"}, {"rho", "rho"}, {"epsilon", "epsilon"}};
}

}  // namespace muster
