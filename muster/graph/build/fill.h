// TensorFlow's functions shape, zeros, ones and zeros_like, for both front ends. Each gives its
// result the name of `own`, the scope that was opened for it.
#pragma once

#include "absl/types/span.h"

#include "muster/graph/build/scope.h"
#include "muster/tensor/tensor.h"

namespace muster {

// Integers as an int32 vector, or int64 where one does not fit.
Tensor IndexVector(absl::Span<const int64_t> values);

// shape(x): a Const of any number type that holds the sizes when the static shape is fully known
// and `optimize` is set; otherwise Shape, which has int32 and int64 only.
Output ShapeNamed(const Scope& own, Output x, DType out_type, bool optimize);
// A tensor full of the scalar `value`: one Const below 1000 elements, otherwise Fill, which keeps
// graphs small; of a shape that is a tensor: Fill. Strings: only the empty one.
Output FilledNamed(const Scope& own, const Shape& shape, const Tensor& value);
Output FilledNamed(const Scope& own, Output shape, const Tensor& value);
// zeros_like(x): zeros of the static shape where it is known and `optimize` is set, else ZerosLike.
Output ZerosLikeNamed(const Scope& own, Output x, bool optimize);

}  // namespace muster
