#include "muster/graph/build/emit.h"

#include <cstring>
#include <utility>

#include "muster/base/check.h"
#include "muster/graph/build/fill.h"

namespace muster {
namespace {

template <typename T>
Tensor Converted(double value) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, Bfloat16>) {
    return Tensor::Scalar<T>(T(static_cast<float>(value)));
  } else if constexpr (std::is_same_v<T, Complex64>) {
    return Tensor::Scalar<T>(T(static_cast<float>(value), 0));
  } else if constexpr (std::is_same_v<T, Complex128>) {
    return Tensor::Scalar<T>(T(value, 0));
  } else {
    return Tensor::Scalar<T>(static_cast<T>(value));
  }
}

}  // namespace

Node* AddNamed(const Scope& own, absl::string_view op, std::vector<NodeInput> inputs,
               AttrMap attrs) {
  return own.WithPrefix("").Add(op, std::move(inputs), std::move(attrs), own.prefix());
}

Output OpNamed(const Scope& own, absl::string_view op, std::vector<NodeInput> inputs,
               AttrMap attrs) {
  return own.WithPrefix("").Op(op, std::move(inputs), std::move(attrs), own.prefix());
}

Output EmitShape(const Scope& scope, Output x, absl::string_view name, DType out_type,
                 bool optimize) {
  if (!x) return Output();  // an error is already recorded
  return ShapeNamed(scope.NameScope(name), x, out_type, optimize);
}

Output EmitElement(const Scope& scope, Output x, int32_t index) {
  const Scope own = scope.NameScope("strided_slice");
  const Output begin = own.ConstVector({index}, "stack");
  const Output end = own.ConstVector({index + 1}, "stack_1");
  const Output strides = own.ConstVector({1}, "stack_2");
  return OpNamed(own, "StridedSlice", {x, begin, end, strides}, {{"shrink_axis_mask", 1}});
}

Output EmitTail(const Scope& scope, Output x) {
  const Scope own = scope.NameScope("strided_slice");
  const Output begin = own.ConstVector({1}, "stack");
  const Output end = own.ConstVector({0}, "stack_1");
  const Output strides = own.ConstVector({1}, "stack_2");
  return OpNamed(own, "StridedSlice", {x, begin, end, strides}, {{"end_mask", 1}});
}

Output EmitSum(const Scope& scope, Output x, absl::Span<const int64_t> axes) {
  const Scope own = scope.NameScope("Sum");
  const Output indices = own.Const(IndexVector(axes), "reduction_indices");
  return OpNamed(own, "Sum", {x, indices});
}

Output EmitReshape(const Scope& scope, Output x, absl::Span<const int64_t> shape) {
  const Scope own = scope.NameScope("Reshape");
  const Output dims = own.Const(IndexVector(shape), "shape");
  return OpNamed(own, "Reshape", {x, dims});
}

Output EmitConcat(const Scope& scope, std::vector<Output> values, absl::string_view name) {
  const Scope own = scope.NameScope(name);
  const Output axis = own.ConstScalar<int32_t>(0, "axis");
  return OpNamed(own, "ConcatV2", {std::move(values), axis});
}

absl::StatusOr<Tensor> TryScalarTensor(DType dtype, double value) {
  switch (dtype) {
    case DType::kFloat:
      return Converted<float>(value);
    case DType::kDouble:
      return Converted<double>(value);
    case DType::kHalf:
      return Converted<Half>(value);
    case DType::kBfloat16:
      return Converted<Bfloat16>(value);
    case DType::kInt8:
      return Converted<int8_t>(value);
    case DType::kInt16:
      return Converted<int16_t>(value);
    case DType::kInt32:
      return Converted<int32_t>(value);
    case DType::kInt64:
      return Converted<int64_t>(value);
    case DType::kUint8:
      return Converted<uint8_t>(value);
    case DType::kUint16:
      return Converted<uint16_t>(value);
    case DType::kUint32:
      return Converted<uint32_t>(value);
    case DType::kUint64:
      return Converted<uint64_t>(value);
    case DType::kComplex64:
      return Converted<Complex64>(value);
    case DType::kComplex128:
      return Converted<Complex128>(value);
    case DType::kBool:
      return Converted<bool>(value);
    default:
      return Unimplemented("A constant number of type ", DTypeName(dtype));
  }
}

Output EmitScalar(const Scope& scope, DType dtype, double value, absl::string_view name) {
  if (dtype == DType::kString && value == 0)
    return scope.Const(Tensor::Zeros(dtype, Shape()), name);
  absl::StatusOr<Tensor> tensor = TryScalarTensor(dtype, value);
  if (!tensor.ok()) {
    scope.UpdateStatus(tensor.status());
    return Output();
  }
  return scope.Const(*std::move(tensor), name);
}

Output EmitZerosConst(const Scope& scope, const Shape& shape, DType dtype, absl::string_view name) {
  absl::StatusOr<Tensor> zeros = Tensor::Make(dtype, shape);
  if (!zeros.ok()) {
    scope.UpdateStatus(zeros.status());
    return Output();
  }
  if (IsPlainData(dtype)) std::memset(zeros->raw(), 0, zeros->size_bytes());
  return scope.Const(*std::move(zeros), name);
}

Output EmitWithScalar(const Scope& scope, absl::string_view op, Output x, double y) {
  if (!x) return Output();
  const Scope own = scope.NameScope(op);
  const Output number = EmitScalar(own, x.base_dtype(), y, "y");
  return OpNamed(own, op, {x, number});
}

Output EmitZeros(const Scope& scope, const Shape& shape, DType dtype, absl::string_view name) {
  return FilledNamed(scope.NameScope(name), shape, Tensor::Zeros(dtype, Shape()));
}

Output EmitZeros(const Scope& scope, Output shape, DType dtype, absl::string_view name) {
  if (!shape) return Output();
  return FilledNamed(scope.NameScope(name), shape, Tensor::Zeros(dtype, Shape()));
}

Output EmitZerosLike(const Scope& scope, Output x, bool optimize) {
  if (!x) return Output();
  return ZerosLikeNamed(scope.NameScope("zeros_like"), x, optimize);
}

DType GradientType(Output x) {
  if (x.base_dtype() != DType::kResource) return x.base_dtype();
  const auto& handle = x.node->output_handle(x.index);
  if (handle.size() != 1 || handle[0].dtype == DType::kInvalid) return DType::kFloat;
  return handle[0].dtype;
}

}  // namespace muster
