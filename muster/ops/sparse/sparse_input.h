// A sparse tensor that comes as three inputs: indices [n, rank], values [n], shape [rank].
#pragma once

#include <type_traits>

#include "muster/ops/op.h"

namespace muster {

// Checks that the three belong together, ranks and counts, and that there can be such a shape.
// CheckIndices checks that the indices are inside it.
absl::Status CheckSparse(const Tensor& indices, const Tensor& values, const Tensor& shape);
// InvalidArgument "indices[i] = [..] is out of bounds: need 0 <= index < [..]".
absl::Status CheckIndices(const Tensor& indices, absl::Span<const int64_t> shape);

// InvalidArgument where entries are repeated or not in row-major order.
absl::Status CheckOrder(const Tensor& indices);

// Shape rule of the three inputs: [n, rank], [n], [rank].
struct SparseDims {
  int64_t count = -1;
  int64_t rank = -1;
};
absl::StatusOr<SparseDims> InferSparse(const ShapeContext& c);

// What elements are summed in: integers wrap around, 16-bit floats are summed as float.
template <typename T>
struct SumType {
  using type = T;
};
template <typename T>
requires std::is_integral_v<T>
struct SumType<T> {
  using type = std::make_unsigned_t<T>;
};
template <>
struct SumType<Half> {
  using type = float;
};
template <>
struct SumType<Bfloat16> {
  using type = float;
};

}  // namespace muster
