#include "muster/ops/emit.h"

namespace muster {
namespace {

Tensor IntTensor(absl::Span<const int32_t> values) {
  return Tensor::Vector<int32_t>(values);
}

// tf.stack of one bound inside strided_slice's scope: a Const, or a Pack of the tensor.
Output EmitBound(const Scope& scope, const SliceBound& bound, absl::string_view name) {
  if (const Output* tensor = std::get_if<Output>(&bound)) {
    return scope.Op("Pack", {std::vector<Output>{*tensor}}, {}, name);
  }
  const int* number = std::get_if<int>(&bound);
  return scope.Const(IntTensor({number != nullptr ? *number : 0}), name);
}

Output EmitStridedSlice(const Scope& scope, Output x, const SliceBound& begin,
                        const SliceBound& end, AttrMap masks) {
  const NamedOp op(scope, "strided_slice");
  Output packed_begin = EmitBound(op.inner(), begin, "stack");
  Output packed_end = EmitBound(op.inner(), end, "stack_1");
  Output packed_strides = op.inner().Const(IntTensor({1}), "stack_2");
  if (packed_begin && packed_end &&
      (packed_begin.base_dtype() == DType::kInt64 || packed_end.base_dtype() == DType::kInt64)) {
    packed_begin = EmitCast(op.inner(), packed_begin, DType::kInt64);
    packed_end = EmitCast(op.inner(), packed_end, DType::kInt64);
    packed_strides = EmitCast(op.inner(), packed_strides, DType::kInt64);
  }
  return op.Op("StridedSlice", {x, packed_begin, packed_end, packed_strides}, std::move(masks));
}

}  // namespace

Output EmitSize(const Scope& scope, Output x) {
  if (!x) return x;  // an earlier node failed
  if (!x.shape().fully_known()) return scope.Op("Size", {x}, {{"out_type", DType::kInt32}});
  return scope.ConstScalar<int32_t>(static_cast<int32_t>(x.shape().num_elements()), "Size");
}

Output EmitRank(const Scope& scope, Output x) {
  if (!x) return x;  // an earlier node failed
  if (!x.shape().known_rank()) return scope.Op("Rank", {x});
  return scope.ConstScalar<int32_t>(x.shape().rank(), "Rank");
}

Output EmitCast(const Scope& scope, Output x, DType dtype) {
  if (!x) return x;  // an earlier node failed
  if (x.base_dtype() == dtype) return x;
  return scope.Op("Cast", {x}, {{"DstT", dtype}});
}

Output EmitGather(const Scope& scope, Output params, Output indices) {
  const NamedOp op(scope, "GatherV2");
  const Output axis = op.inner().ConstScalar<int32_t>(0, "axis");
  return op.Op("GatherV2", {params, indices, axis});
}

Output EmitOnesLike(const Scope& scope, Output x, DType dtype) {
  if (!x) return x;  // an earlier node failed
  const NamedOp op(scope, "ones_like");
  const Output shape = EmitShape(op.inner(), x);
  const Output value = EmitScalar(op.inner(), dtype, 1);
  const Output ones = op.Op("Fill", {shape, value});
  if (ones) {
    if (auto merged = ones.shape().Merge(x.shape()); merged.ok())
      ones.node->set_output_shape(0, *std::move(merged));
  }
  return ones;
}

Output EmitExpandDims(const Scope& scope, Output x, int axis) {
  const NamedOp op(scope, "ExpandDims");
  const Output dim = op.inner().ConstScalar<int32_t>(axis, "dim");
  return op.Op("ExpandDims", {x, dim});
}

Output EmitBinary(const Scope& scope, absl::string_view op_type, absl::string_view name, Output x,
                  double y) {
  if (!x) return x;  // an earlier node failed
  const NamedOp op(scope, name);
  const Output constant = EmitScalar(op.inner(), x.base_dtype(), y, "y");
  return op.Op(op_type, {x, constant});
}

Output EmitOne(const Scope& scope, DType dtype, absl::string_view name) {
  if (dtype == DType::kInt64) return scope.Const(Tensor::Vector<int64_t>({1}), name);
  if (dtype == DType::kInt16) return scope.Const(Tensor::Vector<int16_t>({1}), name);
  return scope.ConstVector({1}, name);
}

Output EmitSlice(const Scope& scope, Output x, SliceBound begin, SliceBound end) {
  const int begin_mask = std::holds_alternative<std::monostate>(begin) ? 1 : 0;
  const int end_mask = std::holds_alternative<std::monostate>(end) ? 1 : 0;
  return EmitStridedSlice(scope, x, begin, end,
                          {{"begin_mask", begin_mask}, {"end_mask", end_mask}});
}

Output EmitElementAt(const Scope& scope, Output x, Output index) {
  const Output end = EmitBinary(scope, "AddV2", "add", index, 1);
  return EmitStridedSlice(scope, x, index, end, {{"shrink_axis_mask", 1}});
}

Output EmitConcatOf(const Scope& scope, const std::vector<ConcatPart>& parts) {
  const NamedOp op(scope, "concat");
  std::vector<Output> values;
  for (size_t i = 0; i < parts.size(); ++i) {
    const ConcatPart& part = parts[i];
    const std::string name = absl::StrCat("values_", i);
    switch (part.kind) {
      case ConcatPart::Kind::kTensor:
        values.push_back(part.tensor);
        break;
      case ConcatPart::Kind::kNumbers:
        values.push_back(op.inner().Const(IntTensor(part.numbers), name));
        break;
      case ConcatPart::Kind::kPacked:
        values.push_back(op.inner().Op("Pack", {std::vector<Output>{part.tensor}}, {}, name));
        break;
    }
  }
  const Output axis = op.inner().ConstScalar<int32_t>(0, "axis");
  return op.Op("ConcatV2", {values, axis});
}

Output EmitRange(const Scope& scope, std::variant<int, Output> start,
                 std::variant<int, Output> limit) {
  const NamedOp op(scope, "range");
  const auto bound = [&op](const std::variant<int, Output>& value, absl::string_view name) {
    if (const Output* tensor = std::get_if<Output>(&value)) return *tensor;
    return op.inner().ConstScalar<int32_t>(std::get<int>(value), name);
  };
  const Output from = bound(start, "start");
  const Output to = bound(limit, "limit");
  const Output delta = op.inner().ConstScalar<int32_t>(1, "delta");
  return op.Op("Range", {from, to, delta});
}

Output EmitProd(const Scope& scope, Output vector) {
  const Output axes = scope.Const(IntTensor({0}), "Const");
  return scope.Op("Prod", {vector, axes}, {{"keep_dims", false}});
}

}  // namespace muster
