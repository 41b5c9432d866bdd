#include "muster/graph/build/fill.h"

#include <cstring>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "muster/graph/build/emit.h"

namespace muster {
namespace {

// Tensors with at least this many elements are filled at run time.
constexpr int64_t kLargeFill = 1000;

Output ConstNamed(const Scope& own, Tensor value) {
  const DType dtype = value.dtype();
  return OpNamed(own, "Const", {}, {{"value", std::move(value)}, {"dtype", dtype}});
}

Tensor Repeated(const Tensor& value, const Shape& shape) {
  Tensor result = Tensor::Zeros(value.dtype(), shape);
  if (!IsPlainData(value.dtype())) return result;  // strings: empty ones only
  const size_t element_bytes = value.size_bytes();
  for (int64_t i = 0; i < shape.num_elements(); ++i)
    std::memcpy(result.raw() + i * element_bytes, value.raw(), element_bytes);
  return result;
}

// `values` as a vector of T; nothing where a value does not fit.
template <typename T>
std::optional<Tensor> VectorOf(absl::Span<const int64_t> values) {
  std::vector<T> converted;
  for (int64_t value : values) {
    converted.push_back(static_cast<T>(value));
    if constexpr (std::is_integral_v<T>) {
      if (!std::in_range<T>(value)) return std::nullopt;
    }
  }
  return Tensor::Vector<T>(converted);
}

std::optional<Tensor> VectorOf(DType dtype, absl::Span<const int64_t> values) {
  switch (dtype) {
    case DType::kInt8: return VectorOf<int8_t>(values);
    case DType::kInt16: return VectorOf<int16_t>(values);
    case DType::kInt32: return VectorOf<int32_t>(values);
    case DType::kInt64: return VectorOf<int64_t>(values);
    case DType::kUint8: return VectorOf<uint8_t>(values);
    case DType::kUint16: return VectorOf<uint16_t>(values);
    case DType::kUint32: return VectorOf<uint32_t>(values);
    case DType::kUint64: return VectorOf<uint64_t>(values);
    case DType::kFloat: return VectorOf<float>(values);
    case DType::kDouble: return VectorOf<double>(values);
    default: return std::nullopt;
  }
}

}  // namespace

Tensor IndexVector(absl::Span<const int64_t> values) {
  return VectorOf<int32_t>(values).value_or(Tensor::Vector<int64_t>(values));
}

Output ShapeNamed(const Scope& own, Output x, DType out_type, bool optimize) {
  if (!x) return Output();  // an error is already recorded
  const auto shape = x.shape().ToShape();
  if (optimize && shape) {
    if (auto dims = VectorOf(out_type, shape->dims())) return ConstNamed(own, *std::move(dims));
  }
  return OpNamed(own, "Shape", {x}, {{"out_type", out_type}});
}

Output FilledNamed(const Scope& own, const Shape& shape, const Tensor& value) {
  if (shape.num_elements() < kLargeFill) return ConstNamed(own, Repeated(value, shape));
  const Output dims = own.Const(IndexVector(shape.dims()), "shape_as_tensor");
  return OpNamed(own, "Fill", {dims, own.Const(value)});
}

Output FilledNamed(const Scope& own, Output shape, const Tensor& value) {
  if (!shape) return Output();
  if (shape.shape().rank() < 1) shape = EmitReshape(own, shape, {-1});
  return OpNamed(own, "Fill", {shape, own.Const(value)});
}

Output ZerosLikeNamed(const Scope& own, Output x, bool optimize) {
  if (!x) return Output();
  const auto shape = x.shape().ToShape();
  const DType dtype = x.base_dtype();
  if (optimize && shape && dtype != DType::kVariant)
    return FilledNamed(own, *shape, Tensor::Zeros(dtype, Shape()));
  return OpNamed(own, "ZerosLike", {x});
}

}  // namespace muster
