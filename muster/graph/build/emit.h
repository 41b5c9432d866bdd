// Small groups of nodes that the front end emits for one call, with its names: an op whose constant
// arguments live in a scope called like the op itself ("Sum", "Sum/reduction_indices").
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"

#include "muster/base/status.h"
#include "muster/graph/build/scope.h"

namespace muster {

// Makes `op` under the very name of `own` (prefix "a/Sum_1/" gives node "a/Sum_1"): `own` is the
// scope that NameScope made for it and that its constants went into.
Node* AddNamed(const Scope& own, absl::string_view op, std::vector<NodeInput> inputs,
               AttrMap attrs = {});
Output OpNamed(const Scope& own, absl::string_view op, std::vector<NodeInput> inputs,
               AttrMap attrs = {});

// Shape(x): a Const when the static shape is fully known and `optimize` is set.
Output EmitShape(const Scope& scope, Output x, absl::string_view name = "Shape",
                 DType out_type = DType::kInt32, bool optimize = true);
// x[index] of a vector: "strided_slice" with its three stacks.
Output EmitElement(const Scope& scope, Output x, int32_t index);
// x[1:] of a vector.
Output EmitTail(const Scope& scope, Output x);
// reduce_sum and reshape with constant arguments.
Output EmitSum(const Scope& scope, Output x, absl::Span<const int64_t> axes);
Output EmitReshape(const Scope& scope, Output x, absl::Span<const int64_t> shape);
// concat(values, 0): "concat" with "concat/axis".
Output EmitConcat(const Scope& scope, std::vector<Output> values,
                  absl::string_view name = "concat");
// A scalar of `dtype` holding `value`. Unimplemented for types without arithmetic.
absl::StatusOr<Tensor> TryScalarTensor(DType dtype, double value);
// A Const of that scalar; errors go to the scope.
Output EmitScalar(const Scope& scope, DType dtype, double value, absl::string_view name = "Const");
// A Const of zeros, whatever its size. InvalidArgument or ResourceExhausted when it cannot be had.
Output EmitZerosConst(const Scope& scope, const Shape& shape, DType dtype,
                      absl::string_view name = "Const");
// An element-wise op whose second argument is the number `y`: "Add" with "Add/y".
Output EmitWithScalar(const Scope& scope, absl::string_view op, Output x, double y);
// zeros_like(x): zeros of the static shape where it is known and `optimize` is set, else ZerosLike.
Output EmitZerosLike(const Scope& scope, Output x, bool optimize = true);
// zeros(shape): one Const below 1000 elements, otherwise Fill; of a tensor: Fill.
Output EmitZeros(const Scope& scope, const Shape& shape, DType dtype,
                 absl::string_view name = "zeros");
Output EmitZeros(const Scope& scope, Output shape, DType dtype, absl::string_view name = "zeros");
// What the gradient of a resource handle holds; the type itself for other outputs. Float where the
// handle is unknown.
DType GradientType(Output x);

}  // namespace muster
