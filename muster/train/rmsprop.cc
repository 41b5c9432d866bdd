#include "muster/train/rmsprop.h"

#include <utility>

namespace muster {

RMSPropOptimizer::RMSPropOptimizer(Operand learning_rate, RMSPropOptions options)
    : ApplyOpOptimizer(std::move(options.name), options.use_locking) {
  AddHyperparameter("learning_rate", std::move(learning_rate));
  AddHyperparameter("decay", std::move(options.decay));
  AddHyperparameter("momentum", std::move(options.momentum));
  AddHyperparameter("epsilon", std::move(options.epsilon));
  op_ = options.centered ? "CenteredRMSProp" : "RMSProp";
  slots_.push_back({"rms", "ms", SlotSpec::Filled{1, true}});
  if (options.centered) slots_.push_back({"mg", "mg", SlotSpec::Zeros()});
  slots_.push_back({"momentum", "mom", SlotSpec::Zeros()});
  hypers_ = {
      {"learning_rate", "lr"}, {"decay", "rho"}, {"momentum", "momentum"}, {"epsilon", "epsilon"}};
}

}  // namespace muster
