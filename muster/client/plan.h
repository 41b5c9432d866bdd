// What sessions make of a signature.
#pragma once

#include "muster/graph/prune.h"

namespace muster {

class StepPlan {
 public:
  explicit StepPlan(StepSignature step_signature) : signature(std::move(step_signature)) {}
  virtual ~StepPlan() = default;
  const StepSignature signature;
};

}  // namespace muster
