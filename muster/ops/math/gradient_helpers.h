// Building blocks of gradient functions that name nodes as TensorFlow 1.15's Python does: operators
// are lower case
// ("mul", "add", "sub", "truediv", "pow"), converted constants are "mul/y" and the like. All of
// them accept the empty output that a failed node leaves behind.
#pragma once

#include "absl/types/span.h"

#include "muster/graph/gradients/gradient_context.h"
#include "muster/ops/emit.h"

namespace muster {

using Reduction = GradientContext::Reduction;

// The dense gradient of output 0, or the error that kept it from being built.
absl::StatusOr<Output> DenseGradient(GradientContext& c);
// A scope whose nodes run after the gradient that arrived.
Scope AfterGradient(GradientContext& c, Output dy);

// Python's operators.
Output Times(const Scope& s, Output x, Output y);
Output Times(const Scope& s, Output x, double y);
Output Times(const Scope& s, double x, Output y);
Output Plus(const Scope& s, Output x, Output y);
Output Plus(const Scope& s, Output x, double y);
Output Plus(const Scope& s, double x, Output y);
Output Minus(const Scope& s, Output x, Output y);
Output Minus(const Scope& s, Output x, double y);
Output Over(const Scope& s, Output x, Output y);
Output Power(const Scope& s, Output x, double y);

// A scalar Const.
Output ConstOf(const Scope& s, DType dtype, double value, absl::string_view name = "Const");
// tf.conj: a node for complex tensors only.
Output Conjugate(const Scope& s, Output x);
// tf.zeros and tf.ones of a shape that is a tensor.
Output Zeros(const Scope& s, Output shape, DType dtype);
Output Ones(const Scope& s, Output shape, DType dtype);

// GradientContext::Reduce with its nodes in a scope of the caller's.
Output Reduce(const Scope& s, Output gradient, const Reduction& reduction);

// Axes (of the broadcast shape) over which the gradients of operands shaped x and y are summed.
struct ReductionAxes {
  Dims x;
  Dims y;
};
absl::StatusOr<ReductionAxes> BroadcastReductionAxes(absl::Span<const int64_t> x,
                                                     absl::Span<const int64_t> y);

}  // namespace muster
