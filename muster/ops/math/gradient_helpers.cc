#include "muster/ops/math/gradient_helpers.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_join.h"

namespace muster {
namespace {

Tensor IntVector(const Dims& values) {
  const std::vector<int32_t> narrow(values.begin(), values.end());
  return Tensor::Vector<int32_t>(narrow);
}

Output FillOf(const Scope& s, absl::string_view name, Output shape, DType dtype, double value) {
  const NamedOp op(s, name);
  const Output scalar = EmitScalar(op.inner(), dtype, value);
  return op.Op("Fill", {shape, scalar});
}

// x op y with a Python number on the left.
Output NumberFirst(const Scope& s, absl::string_view op_type, absl::string_view name, double x,
                   Output y) {
  if (!y) return y;
  const NamedOp op(s, name);
  const Output constant = EmitScalar(op.inner(), y.base_dtype(), x, "x");
  return op.Op(op_type, {constant, y});
}

}  // namespace

absl::StatusOr<Output> DenseGradient(GradientContext& c) {
  const Output dy = c.dy();
  RETURN_IF_ERROR(c.scope().status());
  return dy;
}

Scope AfterGradient(GradientContext& c, Output dy) {
  const std::array<Node*, 1> nodes = {dy.node};
  return c.scope().WithControlDependencies(nodes);
}

Output Times(const Scope& s, Output x, Output y) {
  return s.Op("Mul", {x, y}, {}, "mul");
}
Output Times(const Scope& s, Output x, double y) {
  return EmitBinary(s, "Mul", "mul", x, y);
}
Output Times(const Scope& s, double x, Output y) {
  return NumberFirst(s, "Mul", "mul", x, y);
}
Output Plus(const Scope& s, Output x, Output y) {
  return s.Op("AddV2", {x, y}, {}, "add");
}
Output Plus(const Scope& s, Output x, double y) {
  return EmitBinary(s, "AddV2", "add", x, y);
}
Output Plus(const Scope& s, double x, Output y) {
  return NumberFirst(s, "AddV2", "add", x, y);
}
Output Minus(const Scope& s, Output x, Output y) {
  return s.Op("Sub", {x, y}, {}, "sub");
}
Output Minus(const Scope& s, Output x, double y) {
  return EmitBinary(s, "Sub", "sub", x, y);
}
Output Over(const Scope& s, Output x, Output y) {
  return s.Op("RealDiv", {x, y}, {}, "truediv");
}
Output Power(const Scope& s, Output x, double y) {
  return EmitBinary(s, "Pow", "pow", x, y);
}

Output ConstOf(const Scope& s, DType dtype, double value, absl::string_view name) {
  return EmitScalar(s, dtype, value, name);
}

Output Conjugate(const Scope& s, Output x) {
  if (!x || !IsComplex(x.base_dtype())) return x;
  return s.Op("Conj", {x});
}

Output Zeros(const Scope& s, Output shape, DType dtype) {
  return FillOf(s, "zeros", shape, dtype, 0);
}
Output Ones(const Scope& s, Output shape, DType dtype) {
  return FillOf(s, "ones", shape, dtype, 1);
}

Output Reduce(const Scope& s, Output gradient, const Reduction& reduction) {
  if (!reduction.needed) return gradient;
  if (!reduction.is_static) {
    const Output sum = s.Op("Sum", {gradient, reduction.axes});
    return s.Op("Reshape", {sum, reduction.shape});
  }
  const NamedOp sum(s, "Sum");
  const Output axes = sum.inner().Const(IntVector(reduction.static_axes), "reduction_indices");
  const Output reduced = sum.Op("Sum", {gradient, axes});
  const NamedOp reshape(s, "Reshape");
  const Output shape = reshape.inner().Const(IntVector(reduction.static_shape), "shape");
  return reshape.Op("Reshape", {reduced, shape});
}

absl::StatusOr<ReductionAxes> BroadcastReductionAxes(absl::Span<const int64_t> x,
                                                     absl::Span<const int64_t> y) {
  ReductionAxes axes;
  if (x == y) return axes;
  const int rank = static_cast<int>(std::max(x.size(), y.size()));
  for (int i = 0; i < rank; ++i) {
    const int x_at = i - (rank - static_cast<int>(x.size()));
    const int y_at = i - (rank - static_cast<int>(y.size()));
    const int64_t x_size = x_at < 0 ? 1 : x[x_at];
    const int64_t y_size = y_at < 0 ? 1 : y[y_at];
    if (x_size != y_size && x_size != 1 && y_size != 1) {
      return InvalidArgument("Incompatible shapes: [", absl::StrJoin(x, ","), "] vs. [",
                             absl::StrJoin(y, ","), "]");
    }
    if (x_size == 1) axes.x.push_back(i);
    if (y_size == 1) axes.y.push_back(i);
  }
  return axes;
}

}  // namespace muster
