// Gradients of the reductions, node for node as TensorFlow 1.15 builds them.
#pragma once

#include "muster/base/status.h"
#include "muster/graph/gradients/gradient_context.h"

namespace muster {

absl::Status DifferentiateSum(GradientContext& g);
absl::Status DifferentiateMean(GradientContext& g);
absl::Status DifferentiateProd(GradientContext& g);
absl::Status DifferentiateExtreme(GradientContext& g);  // Max and Min
absl::Status DifferentiateNorm(GradientContext& g);     // EuclideanNorm, as TensorFlow 2.21 does

// The shape that a reduction over `axes` has when it keeps its dims, as nodes.
Output EmitReducedShape(const Scope& scope, Output input_shape, Output axes);

}  // namespace muster
