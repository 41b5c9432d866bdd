#include "muster/ops/emit.h"

namespace muster {
namespace {

Tensor IntTensor(absl::Span<const int32_t> values) { return Tensor::Vector<int32_t>(values); }

// tf.stack of one bound inside strided_slice's scope: a Const, or a Pack of the tensor.
Output EmitBound(const Scope& scope, const SliceBound& bound, absl::string_view name) {
  if (const Output* tensor = std::get_if<Output>(&bound)) {
    return scope.Op("Pack", {std::vector<Output>{*tensor}}, {}, name);
  }
  const int* number = std::get_if<int>(&bound);
  return scope.Const(IntTensor({number != nullptr ? *number : 0}), name);
}

Output EmitStridedSlice(const Scope& scope, Output x, const SliceBound& begin, const SliceBound& end, AttrMap masks) {
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

Tensor FilledTensor(DType dtype, const Shape& shape, double value) {
  if (value == 0) return Tensor::Zeros(dtype, shape);
  return ScalarTensor(dtype, value);
}

}  // namespace

Tensor ScalarTensor(DType dtype, double value) {
  switch (dtype) {
    case DType::kFloat: return Tensor::Scalar<float>(static_cast<float>(value));
    case DType::kDouble: return Tensor::Scalar<double>(value);
    case DType::kHalf: return Tensor::Scalar<Half>(Half(static_cast<float>(value)));
    case DType::kBfloat16: return Tensor::Scalar<Bfloat16>(Bfloat16(static_cast<float>(value)));
    case DType::kInt8: return Tensor::Scalar<int8_t>(static_cast<int8_t>(value));
    case DType::kInt16: return Tensor::Scalar<int16_t>(static_cast<int16_t>(value));
    case DType::kInt32: return Tensor::Scalar<int32_t>(static_cast<int32_t>(value));
    case DType::kInt64: return Tensor::Scalar<int64_t>(static_cast<int64_t>(value));
    case DType::kUint8: return Tensor::Scalar<uint8_t>(static_cast<uint8_t>(value));
    case DType::kUint16: return Tensor::Scalar<uint16_t>(static_cast<uint16_t>(value));
    case DType::kUint32: return Tensor::Scalar<uint32_t>(static_cast<uint32_t>(value));
    case DType::kUint64: return Tensor::Scalar<uint64_t>(static_cast<uint64_t>(value));
    case DType::kBool: return Tensor::Scalar<bool>(value != 0);
    case DType::kComplex64: return Tensor::Scalar<Complex64>(Complex64(static_cast<float>(value), 0));
    case DType::kComplex128: return Tensor::Scalar<Complex128>(Complex128(value, 0));
    default: return Tensor::Zeros(dtype, Shape());
  }
}

Output EmitShape(const Scope& scope, Output x, DType out_type, absl::string_view name) {
  if (!x) return x;  // an earlier node failed
  if (!x.shape().fully_known()) return scope.Op("Shape", {x}, {{"out_type", out_type}}, name);
  const Dims& dims = x.shape().dims();
  if (out_type == DType::kInt64) return scope.Const(Tensor::Vector<int64_t>(dims), name);
  std::vector<int32_t> small(dims.begin(), dims.end());
  return scope.Const(IntTensor(small), name);
}

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

Output EmitZerosLike(const Scope& scope, Output x) {
  if (!x) return x;  // an earlier node failed
  const std::optional<Shape> shape = x.shape().ToShape();
  const NamedOp op(scope, "zeros_like");
  if (!shape.has_value()) return op.Op("ZerosLike", {x});
  // The front end makes a Const of small ones and Fill of the others.
  if (shape->num_elements() < 1000) return op.Const(FilledTensor(x.base_dtype(), *shape, 0));
  std::vector<int32_t> dims(shape->dims().begin(), shape->dims().end());
  const Output as_tensor = op.inner().Const(IntTensor(dims), "shape_as_tensor");
  const Output value = op.inner().Const(ScalarTensor(x.base_dtype(), 0), "Const");
  return op.Op("Fill", {as_tensor, value});
}

Output EmitOnesLike(const Scope& scope, Output x, DType dtype) {
  if (!x) return x;  // an earlier node failed
  const NamedOp op(scope, "ones_like");
  const Output shape = EmitShape(op.inner(), x);
  const Output value = op.inner().Const(ScalarTensor(dtype, 1), "Const");
  const Output ones = op.Op("Fill", {shape, value});
  if (ones) {
    if (auto merged = ones.shape().Merge(x.shape()); merged.ok()) ones.node->set_output_shape(0, *std::move(merged));
  }
  return ones;
}

Output EmitExpandDims(const Scope& scope, Output x, int axis) {
  const NamedOp op(scope, "ExpandDims");
  const Output dim = op.inner().ConstScalar<int32_t>(axis, "dim");
  return op.Op("ExpandDims", {x, dim});
}

Output EmitBinary(const Scope& scope, absl::string_view op_type, absl::string_view name, Output x, double y) {
  if (!x) return x;  // an earlier node failed
  const NamedOp op(scope, name);
  const Output constant = op.inner().Const(ScalarTensor(x.base_dtype(), y), "y");
  return op.Op(op_type, {x, constant});
}

Output EmitSlice(const Scope& scope, Output x, SliceBound begin, SliceBound end) {
  const int begin_mask = std::holds_alternative<std::monostate>(begin) ? 1 : 0;
  const int end_mask = std::holds_alternative<std::monostate>(end) ? 1 : 0;
  return EmitStridedSlice(scope, x, begin, end, {{"begin_mask", begin_mask}, {"end_mask", end_mask}});
}

Output EmitElement(const Scope& scope, Output x, std::variant<int, Output> index) {
  if (const int* number = std::get_if<int>(&index)) {
    return EmitStridedSlice(scope, x, *number, *number + 1, {{"shrink_axis_mask", 1}});
  }
  const Output tensor = std::get<Output>(index);
  const Output end = EmitBinary(scope, "AddV2", "add", tensor, 1);
  return EmitStridedSlice(scope, x, tensor, end, {{"shrink_axis_mask", 1}});
}

Output EmitConcat(const Scope& scope, const std::vector<ConcatPart>& parts) {
  const NamedOp op(scope, "concat");
  std::vector<Output> values;
  for (size_t i = 0; i < parts.size(); ++i) {
    const ConcatPart& part = parts[i];
    const std::string name = absl::StrCat("values_", i);
    switch (part.kind) {
      case ConcatPart::Kind::kTensor: values.push_back(part.tensor); break;
      case ConcatPart::Kind::kNumbers: values.push_back(op.inner().Const(IntTensor(part.numbers), name)); break;
      case ConcatPart::Kind::kPacked:
        values.push_back(op.inner().Op("Pack", {std::vector<Output>{part.tensor}}, {}, name));
        break;
    }
  }
  const Output axis = op.inner().ConstScalar<int32_t>(0, "axis");
  return op.Op("ConcatV2", {values, axis});
}

Output EmitRange(const Scope& scope, std::variant<int, Output> start, std::variant<int, Output> limit) {
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

Output EmitReshape(const Scope& scope, Output x, std::vector<int32_t> shape) {
  const NamedOp op(scope, "Reshape");
  const Output as_tensor = op.inner().Const(IntTensor(shape), "shape");
  return op.Op("Reshape", {x, as_tensor});
}

Output EmitProd(const Scope& scope, Output vector) {
  const Output axes = scope.Const(IntTensor({0}), "Const");
  return scope.Op("Prod", {vector, axes}, {{"keep_dims", false}});
}

}  // namespace muster
