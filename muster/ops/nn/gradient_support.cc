#include "muster/ops/nn/gradient_support.h"

#include "muster/graph/build/emit.h"

namespace muster {

Output OpWithConstant(GradientContext& c, absl::string_view op, Output input, Tensor constant,
                      absl::string_view constant_name, AttrMap attrs, absl::string_view name) {
  const Scope inner = c.scope().NameScope(name.empty() ? op : name);
  const Output value = inner.Const(std::move(constant), constant_name);
  return OpNamed(inner, op, {input, value}, std::move(attrs));
}

Output SumOverLastAxis(GradientContext& c, Output x) {
  return OpWithConstant(c, "Sum", x, Tensor::Scalar<int32_t>(-1), "reduction_indices",
                        {{"keep_dims", true}});
}

Output ExpandDims(GradientContext& c, Output x, int axis) {
  return OpWithConstant(c, "ExpandDims", x, Tensor::Scalar<int32_t>(axis), "dim");
}

Output ZerosLike(GradientContext& c, Output x) {
  return EmitZerosLike(c.scope(), x);
}

AttrMap CopyAttrs(const GradientContext& c, std::initializer_list<const char*> names) {
  AttrMap attrs;
  for (const char* name : names) {
    const AttrDef* def = c.node().def().FindAttr(name);
    const AttrValue* value = c.node().FindAttr(name);
    if (value == nullptr) continue;
    // Attributes unknown to TensorFlow 1.15 are left out while they have their default.
    if (def != nullptr && def->since_2x && def->default_value && *def->default_value == *value)
      continue;
    attrs.insert_or_assign(name, *value);
  }
  return attrs;
}

}  // namespace muster
