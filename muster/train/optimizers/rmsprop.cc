#include "muster/train/optimizers/definition.h"

namespace muster {
namespace {

ApplyRule RmsPropRule(const DefinedOptimizer& rmsprop) {
  const bool centered = rmsprop.Flag("centered");
  ApplyRule rule;
  rule.op = centered ? "CenteredRMSProp" : "RMSProp";
  rule.slots.push_back({"rms", "ms", SlotSpec::Filled{1, true}});
  if (centered) rule.slots.push_back({"mg", "mg"});
  rule.slots.push_back({"momentum", "mom"});
  rule.hypers = {
      {"learning_rate", "lr"}, {"decay", "rho"}, {"momentum", "momentum"}, {"epsilon", "epsilon"}};
  return rule;
}

}  // namespace

DEFINE_OPTIMIZER(RMSProp) {
  optimizer.Doc("RMSProp: gradients over the root of the average of their squares, with momentum.")
      .Tensor("learning_rate", kRequired, "The learning rate.")
      .Tensor("decay", 0.9, "The decay of the average.")
      .Tensor("momentum", 0.0, "The part of the last update that a step keeps.")
      .Tensor("epsilon", 1e-10, "Added to the average before its root is taken.")
      .UseLocking()
      .Flag("centered", false,
            "Whether gradients are divided by the root of their variance instead of that of their "
            "mean square.")
      .Name()
      .Rule(RmsPropRule);
}

}  // namespace muster
