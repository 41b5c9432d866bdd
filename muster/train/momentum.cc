#include "muster/train/momentum.h"

#include <utility>

namespace muster {

MomentumOptimizer::MomentumOptimizer(Operand learning_rate, Operand momentum,
                                     MomentumOptions options)
    : ApplyOpOptimizer(std::move(options.name), options.use_locking) {
  AddHyperparameter("learning_rate", std::move(learning_rate));
  AddHyperparameter("momentum", std::move(momentum));
  op_ = "Momentum";
  slots_ = {{"momentum", "accum", SlotSpec::Zeros()}};
  hypers_ = {{"learning_rate", "lr"}, {"momentum", "momentum"}};
  attrs_ = {{"use_nesterov", options.use_nesterov}};
}

}  // namespace muster
