// Joining tensors along an existing axis: shared by the two spellings of the op.
#pragma once

#include "muster/graph/gradients/gradient_context.h"

namespace muster {

// Gradient of Concat (axis first) and ConcatV2 (axis last).
absl::Status ConcatGradient(GradientContext& c);

}  // namespace muster
