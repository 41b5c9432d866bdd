#include "muster/ops/nn/gradient_support.h"

#include "muster/graph/op_registry.h"

namespace muster {
namespace {

// Larger results are not stored in the graph.
constexpr int64_t kLargestConstant = 1000;

Output ShapeConstant(const Scope& scope, const PartialShape& shape) {
  std::vector<int32_t> sizes(shape.dims().begin(), shape.dims().end());
  return scope.ConstVector(sizes, "shape_as_tensor");
}

}  // namespace

Output OpWithConstant(GradientContext& c, absl::string_view op, Output input, Tensor constant,
                      absl::string_view constant_name, AttrMap attrs, absl::string_view name) {
  const Scope inner = c.scope().NameScope(name.empty() ? op : name);
  const Output value = inner.Const(std::move(constant), constant_name);
  return c.scope().Op(op, {input, value}, std::move(attrs), inner.prefix());
}

Output SumOverLastAxis(GradientContext& c, Output x) {
  return OpWithConstant(c, "Sum", x, Tensor::Scalar<int32_t>(-1), "reduction_indices", {{"keep_dims", true}});
}

Output ExpandDims(GradientContext& c, Output x, int axis) {
  return OpWithConstant(c, "ExpandDims", x, Tensor::Scalar<int32_t>(axis), "dim");
}

Output ZerosLike(GradientContext& c, Output x) {
  if (!x.shape().fully_known()) return c.Op("ZerosLike", {x}, {}, "zeros_like");
  const Shape shape = *x.shape().ToShape();
  if (shape.num_elements() < kLargestConstant) {
    return c.scope().Const(Tensor::Zeros(x.base_dtype(), shape), "zeros_like");
  }
  const Scope inner = c.scope().NameScope("zeros_like");
  const Output sizes = ShapeConstant(inner, x.shape());
  const Output zero = inner.Const(Tensor::Zeros(x.base_dtype(), Shape()));
  return c.scope().Op("Fill", {sizes, zero}, {}, inner.prefix());
}

AttrMap CopyAttrs(const GradientContext& c, std::initializer_list<const char*> names) {
  AttrMap attrs;
  for (const char* name : names) {
    const AttrDef* def = c.node().def().FindAttr(name);
    const AttrValue* value = c.node().FindAttr(name);
    if (value == nullptr) continue;
    // What TensorFlow 1.15 does not know stays away while it says nothing new.
    if (def != nullptr && def->since_2x && def->default_value && *def->default_value == *value) continue;
    attrs.insert_or_assign(name, *value);
  }
  return attrs;
}

}  // namespace muster
