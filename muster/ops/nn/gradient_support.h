// Pieces of gradient graphs that several gradients of this folder share, named as the Python front
// end names them.
#pragma once

#include "muster/graph/gradients/gradient_context.h"

namespace muster {

// op(input, constant): the constant is named `<name>/<constant_name>`.
Output OpWithConstant(GradientContext& c, absl::string_view op, Output input, Tensor constant,
                      absl::string_view constant_name, AttrMap attrs = {},
                      absl::string_view name = "");
// reduce_sum over the last axis, which stays with size one.
Output SumOverLastAxis(GradientContext& c, Output x);
// expand_dims(x, axis).
Output ExpandDims(GradientContext& c, Output x, int axis);
// zeros_like(x): a constant where the static shape is known (filled by an op when it is large).
Output ZerosLike(GradientContext& c, Output x);
// The named attributes of the node that is differentiated, for its gradient op.
AttrMap CopyAttrs(const GradientContext& c, std::initializer_list<const char*> names);

}  // namespace muster
