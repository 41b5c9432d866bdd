#include "muster/ops/math/gradient_helpers.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_join.h"
#include "muster/base/check.h"

namespace muster {
namespace {

// Larger tensors of one value are filled at run time instead of being stored in the graph.
constexpr int64_t kSmallConstant = 1000;

Tensor Filled(DType dtype, const Shape& shape, double value) {
  Tensor tensor = Tensor::Zeros(dtype, shape);
  if (value != 0) {
    const Tensor scalar = ScalarOf(dtype, value);
    const size_t size = DTypeSize(dtype);
    for (int64_t i = 0; i < tensor.num_elements(); ++i) {
      std::copy_n(scalar.raw(), size, tensor.raw() + i * static_cast<int64_t>(size));
    }
  }
  return tensor;
}

Tensor IntVector(const Dims& values) {
  std::vector<int32_t> narrow(values.begin(), values.end());
  return Tensor::Vector<int32_t>(narrow);
}

Output FillOf(const Scope& s, absl::string_view name, Output shape, DType dtype, double value) {
  const NamedOp op(s, name);
  const Output scalar = op.Const(dtype == DType::kBool ? Tensor::Scalar<bool>(value != 0) : ScalarOf(dtype, value), "Const");
  return op.Op("Fill", {shape, scalar});
}

// Whether this graph has worked out the axes for these shapes before: TensorFlow keeps them and adds no second node.
bool AxesKnown(const Graph& graph, const Dims& x, const Dims& y) {
  const auto holds = [](const Output& input, const std::string& name, const Dims& dims) {
    if (input.node == nullptr || input.node->op() != "Const" || input.node->name() != name) return false;
    const absl::StatusOr<Tensor> value = input.node->Attr<Tensor>("value");
    if (!value.ok()) return false;
    const absl::StatusOr<Dims> values = IntegerValues(*value);
    return values.ok() && *values == dims;
  };
  for (const auto& node : graph.nodes()) {
    if (node->op() != "BroadcastGradientArgs" || node->num_inputs() != 2) continue;
    if (holds(node->input(0), absl::StrCat(node->name(), "/s0"), x) &&
        holds(node->input(1), absl::StrCat(node->name(), "/s1"), y)) {
      return true;
    }
  }
  return false;
}

template <typename X, typename Y>
Output BinaryWithConstant(const Scope& s, absl::string_view op, absl::string_view name, X x, Y y) {
  const NamedOp named(s, name);
  if constexpr (std::is_same_v<X, double>) {
    const Output constant = named.Scalar(y.base_dtype(), x, "x");
    return named.Op(op, {constant, y});
  } else {
    const Output constant = named.Scalar(x.base_dtype(), y, "y");
    return named.Op(op, {x, constant});
  }
}

}  // namespace

Scope AfterGradient(GradientContext& c, Output dy) {
  const std::array<Node*, 1> nodes = {dy.node};
  return c.scope().WithControlDependencies(nodes);
}

Output NamedOp::Scalar(DType dtype, double value, absl::string_view name) const {
  return inner_.Const(ScalarOf(dtype, value), name);
}

Output NamedOp::Op(absl::string_view op, std::vector<NodeInput> inputs, AttrMap attrs) const {
  return outer_.WithPrefix("").Op(op, std::move(inputs), std::move(attrs), inner_.prefix());
}

Tensor ScalarOf(DType dtype, double value) {
  switch (dtype) {
    case DType::kFloat: return Tensor::Scalar<float>(static_cast<float>(value));
    case DType::kDouble: return Tensor::Scalar<double>(value);
    case DType::kHalf: return Tensor::Scalar<Half>(Half(static_cast<float>(value)));
    case DType::kBfloat16: return Tensor::Scalar<Bfloat16>(Bfloat16(static_cast<float>(value)));
    case DType::kComplex64: return Tensor::Scalar<Complex64>(Complex64(static_cast<float>(value)));
    case DType::kComplex128: return Tensor::Scalar<Complex128>(Complex128(value));
    case DType::kInt8: return Tensor::Scalar<int8_t>(static_cast<int8_t>(value));
    case DType::kInt16: return Tensor::Scalar<int16_t>(static_cast<int16_t>(value));
    case DType::kInt32: return Tensor::Scalar<int32_t>(static_cast<int32_t>(value));
    case DType::kInt64: return Tensor::Scalar<int64_t>(static_cast<int64_t>(value));
    case DType::kUint8: return Tensor::Scalar<uint8_t>(static_cast<uint8_t>(value));
    case DType::kUint16: return Tensor::Scalar<uint16_t>(static_cast<uint16_t>(value));
    case DType::kUint32: return Tensor::Scalar<uint32_t>(static_cast<uint32_t>(value));
    case DType::kUint64: return Tensor::Scalar<uint64_t>(static_cast<uint64_t>(value));
    default: return Tensor::Zeros(dtype, Shape());
  }
}

Output Times(const Scope& s, Output x, Output y) { return s.Op("Mul", {x, y}, {}, "mul"); }
Output Times(const Scope& s, Output x, double y) { return BinaryWithConstant(s, "Mul", "mul", x, y); }
Output Times(const Scope& s, double x, Output y) { return BinaryWithConstant(s, "Mul", "mul", x, y); }
Output Plus(const Scope& s, Output x, Output y) { return s.Op("AddV2", {x, y}, {}, "add"); }
Output Plus(const Scope& s, Output x, double y) { return BinaryWithConstant(s, "AddV2", "add", x, y); }
Output Plus(const Scope& s, double x, Output y) { return BinaryWithConstant(s, "AddV2", "add", x, y); }
Output Minus(const Scope& s, Output x, Output y) { return s.Op("Sub", {x, y}, {}, "sub"); }
Output Minus(const Scope& s, Output x, double y) { return BinaryWithConstant(s, "Sub", "sub", x, y); }
Output Over(const Scope& s, Output x, Output y) { return s.Op("RealDiv", {x, y}, {}, "truediv"); }
Output Power(const Scope& s, Output x, double y) { return BinaryWithConstant(s, "Pow", "pow", x, y); }

Output Conjugate(const Scope& s, Output x) { return IsComplex(x.base_dtype()) ? s.Op("Conj", {x}) : x; }

Output ZerosLike(const Scope& s, Output x) {
  const std::optional<Shape> shape = x.shape().ToShape();
  if (!shape || x.base_dtype() == DType::kVariant) return s.Op("ZerosLike", {x}, {}, "zeros_like");
  if (shape->num_elements() < kSmallConstant) return s.Const(Filled(x.base_dtype(), *shape, 0), "zeros_like");
  const NamedOp op(s, "zeros_like");
  const Output dims = op.Const(IntVector(shape->dims()), "shape_as_tensor");
  const Output zero = op.Const(Filled(x.base_dtype(), Shape(), 0), "Const");
  return op.Op("Fill", {dims, zero});
}

Output OnesLike(const Scope& s, Output x) {
  const NamedOp op(s, "ones_like");
  const std::optional<Shape> shape = x.shape().ToShape();
  const Output dims = shape ? op.Const(IntVector(shape->dims()), "Shape")
                            : op.inner().Op("Shape", {x}, {{"out_type", DType::kInt32}}, "Shape");
  const Output one = op.Const(ScalarOf(x.base_dtype(), 1), "Const");
  return op.Op("Fill", {dims, one});
}

Output Zeros(const Scope& s, Output shape, DType dtype) { return FillOf(s, "zeros", shape, dtype, 0); }
Output Ones(const Scope& s, Output shape, DType dtype) { return FillOf(s, "ones", shape, dtype, 1); }

bool SameKnownShape(Output x, Output y, Output dy) {
  return x.shape().fully_known() && x.shape() == y.shape() && x.shape() == dy.shape();
}

std::pair<Reduction, Reduction> ShapeReductions(GradientContext& c, Output x, Output y) {
  Reduction rx;
  Reduction ry;
  rx.shape = c.ShapeOf(x);
  ry.shape = c.ShapeOf(y);
  const Output axes = c.Op("BroadcastGradientArgs", {rx.shape, ry.shape});
  rx.axes = axes;
  ry.axes = Output(axes.node, 1);
  return {rx, ry};
}

std::pair<Reduction, Reduction> SmartReductions(GradientContext& c, Output x, Output y, Output dy) {
  Reduction rx;
  Reduction ry;
  if (!x.shape().fully_known() || !y.shape().fully_known()) {
    rx.shape = c.Op("Shape", {x}, {{"out_type", DType::kInt32}});
    ry.shape = c.Op("Shape", {y}, {{"out_type", DType::kInt32}});
    const Output axes = c.Op("BroadcastGradientArgs", {rx.shape, ry.shape});
    rx.axes = axes;
    ry.axes = Output(axes.node, 1);
    return {rx, ry};
  }
  rx.is_static = ry.is_static = true;
  rx.static_shape = x.shape().dims();
  ry.static_shape = y.shape().dims();
  rx.needed = !(x.shape() == dy.shape());
  ry.needed = !(y.shape() == dy.shape());
  if (!AxesKnown(c.scope().graph(), rx.static_shape, ry.static_shape)) {
    const NamedOp op(c.scope(), "BroadcastGradientArgs");
    const Output s0 = op.Const(IntVector(rx.static_shape), "s0");
    const Output s1 = op.Const(IntVector(ry.static_shape), "s1");
    op.Op("BroadcastGradientArgs", {s0, s1});
  }
  absl::StatusOr<ReductionAxes> axes = BroadcastReductionAxes(rx.static_shape, ry.static_shape);
  if (!axes.ok()) {
    c.scope().UpdateStatus(axes.status());
    return {rx, ry};
  }
  rx.static_axes = axes->x;
  ry.static_axes = axes->y;
  return {rx, ry};
}

Output Reduce(const Scope& s, Output gradient, const Reduction& reduction) {
  if (!reduction.needed) return gradient;
  if (!reduction.is_static) {
    const Output sum = s.Op("Sum", {gradient, reduction.axes});
    return s.Op("Reshape", {sum, reduction.shape});
  }
  const NamedOp sum(s, "Sum");
  const Output axes = sum.Const(IntVector(reduction.static_axes), "reduction_indices");
  const Output reduced = sum.Op("Sum", {gradient, axes});
  const NamedOp reshape(s, "Reshape");
  const Output shape = reshape.Const(IntVector(reduction.static_shape), "shape");
  return reshape.Op("Reshape", {reduced, shape});
}

absl::StatusOr<ReductionAxes> BroadcastReductionAxes(absl::Span<const int64_t> x, absl::Span<const int64_t> y) {
  ReductionAxes axes;
  if (x == y) return axes;
  const int rank = static_cast<int>(std::max(x.size(), y.size()));
  for (int i = 0; i < rank; ++i) {
    const int x_at = i - (rank - static_cast<int>(x.size()));
    const int y_at = i - (rank - static_cast<int>(y.size()));
    const int64_t x_size = x_at < 0 ? 1 : x[x_at];
    const int64_t y_size = y_at < 0 ? 1 : y[y_at];
    if (x_size != y_size && x_size != 1 && y_size != 1) {
      return InvalidArgument("Incompatible shapes: [", absl::StrJoin(x, ","), "] vs. [", absl::StrJoin(y, ","), "]");
    }
    if (x_size == 1) axes.x.push_back(i);
    if (y_size == 1) axes.y.push_back(i);
  }
  return axes;
}

}  // namespace muster
