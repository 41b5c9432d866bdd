// What sessions make of a signature.
#pragma once

#include "absl/container/flat_hash_map.h"

#include "muster/graph/rewrite/prune.h"

namespace muster {

class StepPlan {
 public:
  explicit StepPlan(StepSignature step_signature) : signature(std::move(step_signature)) {}
  virtual ~StepPlan() = default;
  const StepSignature signature;
  // Of the nodes that StepLinks knows, whether a step runs them. Its lock guards it.
  mutable absl::flat_hash_map<const Node*, bool> needed;
};

}  // namespace muster
