// Building blocks of gradient functions that name nodes as TensorFlow 1.15's Python does: operators are lower case
// ("mul", "add", "sub", "truediv", "pow"), converted constants are "mul/y" and the like.
#pragma once

#include <utility>

#include "absl/types/span.h"
#include "muster/graph/gradient_context.h"

namespace muster {

// A scope whose nodes run after the gradient that arrived.
Scope AfterGradient(GradientContext& c, Output dy);

// An op with constants converted in its name scope: `NamedOp m(s, "mul"); m.Op("Mul", {x, m.Scalar(...)})`.
class NamedOp {
 public:
  NamedOp(const Scope& outer, absl::string_view name) : outer_(outer), inner_(outer.NameScope(name)) {}
  Output Const(Tensor value, absl::string_view name) const { return inner_.Const(std::move(value), name); }
  Output Scalar(DType dtype, double value, absl::string_view name) const;
  Output Op(absl::string_view op, std::vector<NodeInput> inputs, AttrMap attrs = {}) const;
  const Scope& inner() const { return inner_; }

 private:
  Scope outer_;
  Scope inner_;
};

// A scalar of any number type. Requires: a numeric dtype.
Tensor ScalarOf(DType dtype, double value);

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

// tf.conj: a node for complex tensors only.
Output Conjugate(const Scope& s, Output x);
// tf.zeros_like, tf.ones_like; tf.zeros and tf.ones of a shape that is a tensor.
Output ZerosLike(const Scope& s, Output x);
Output OnesLike(const Scope& s, Output x);
Output Zeros(const Scope& s, Output shape, DType dtype);
Output Ones(const Scope& s, Output shape, DType dtype);

// --- Broadcasting ops ------------------------------------------------------------------------------------------------

// What turns the gradient of a broadcast result into that of one operand.
struct Reduction {
  bool needed = true;
  Output shape;  // of the operand, and the axes to sum over: tensors, or...
  Output axes;
  bool is_static = false;  // ...values known while the graph is built
  Dims static_shape;
  Dims static_axes;
};

// Shapes of all three fully known and equal.
bool SameKnownShape(Output x, Output y, Output dy);
// Shape, Shape_1 (constants where known) and BroadcastGradientArgs; always reduces.
std::pair<Reduction, Reduction> ShapeReductions(GradientContext& c, Output x, Output y);
// The variant of Add, Sub, Mul, Pow and SquaredDifference: where both shapes are known the axes are worked out at once
// (with one BroadcastGradientArgs per pair of shapes and graph) and operands of dy's shape are left alone.
std::pair<Reduction, Reduction> SmartReductions(GradientContext& c, Output x, Output y, Output dy);
// Sum and Reshape, or `gradient` itself.
Output Reduce(const Scope& s, Output gradient, const Reduction& reduction);

// Axes (of the broadcast shape) over which the gradients of operands shaped x and y are summed.
struct ReductionAxes {
  Dims x;
  Dims y;
};
absl::StatusOr<ReductionAxes> BroadcastReductionAxes(absl::Span<const int64_t> x, absl::Span<const int64_t> y);

}  // namespace muster
