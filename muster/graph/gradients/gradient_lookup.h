// Which function differentiates a node.
#pragma once

#include "muster/graph/gradients/gradient_context.h"

namespace muster {

struct GradientLookup {
  GradientFunction function;  // empty: not differentiable
  bool of_call = false;       // that of a function, which takes a gradient for each result
};

// One that RegisterGradient (gradients.h) added, that of the op, or that of the function which the
// node calls. An error of the kind LookupError where there is none. Thread-safe.
absl::StatusOr<GradientLookup> FindGradient(const Node& node);

}  // namespace muster
