// Nodes as the Python front end of TensorFlow 1.15 makes them inside gradients: the same ops, names and order of
// creation, with converted Python numbers as Const nodes "<op>/<argument>".
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "muster/graph/scope.h"

namespace muster {

// An op whose converted arguments live in a name scope of its own. The scope is entered first, the op takes its name.
class NamedOp {
 public:
  NamedOp(const Scope& scope, absl::string_view name) : outer_(scope), inner_(scope.NameScope(name)) {}
  const Scope& inner() const { return inner_; }
  Node* Add(absl::string_view op, std::vector<NodeInput> inputs, AttrMap attrs = {}) const {
    return outer_.Add(op, std::move(inputs), std::move(attrs), inner_.prefix());
  }
  Output Op(absl::string_view op, std::vector<NodeInput> inputs, AttrMap attrs = {}) const {
    return outer_.Op(op, std::move(inputs), std::move(attrs), inner_.prefix());
  }
  // The op is a Const.
  Output Const(Tensor value) const { return outer_.Const(std::move(value), inner_.prefix()); }

 private:
  Scope outer_;
  Scope inner_;
};

// tf.shape: a Const when the static shape is fully known.
Output EmitShape(const Scope& scope, Output x, DType out_type = DType::kInt32, absl::string_view name = "Shape");
// tf.size and tf.rank (int32).
Output EmitSize(const Scope& scope, Output x);
Output EmitRank(const Scope& scope, Output x);
// tf.cast: nothing when x has the type already.
Output EmitCast(const Scope& scope, Output x, DType dtype);
// tf.gather along axis 0.
Output EmitGather(const Scope& scope, Output params, Output indices);
Output EmitZerosLike(const Scope& scope, Output x);
// tf.ones_like with another type.
Output EmitOnesLike(const Scope& scope, Output x, DType dtype);
Output EmitExpandDims(const Scope& scope, Output x, int axis);
// x op y with a Python number y, named `name` and "<name>/y"; y takes x's type.
Output EmitBinary(const Scope& scope, absl::string_view op, absl::string_view name, Output x, double y);
// A Const of any numeric type.
Tensor ScalarTensor(DType dtype, double value);

// One bound of a Python slice: a number, a scalar tensor, or absent.
using SliceBound = std::variant<std::monostate, int, Output>;
// x[begin:end] for a vector x.
Output EmitSlice(const Scope& scope, Output x, SliceBound begin, SliceBound end);
// x[i]; a tensor index also makes "add" for its end.
Output EmitElement(const Scope& scope, Output x, std::variant<int, Output> index);

// One part of tf.concat(..., 0) of int32 vectors: a tensor, a list of numbers, or a list of one scalar tensor.
struct ConcatPart {
  enum class Kind { kTensor, kNumbers, kPacked };
  Kind kind;
  Output tensor;
  std::vector<int32_t> numbers;
  static ConcatPart Of(Output tensor) { return {Kind::kTensor, tensor, {}}; }
  static ConcatPart Numbers(std::vector<int32_t> numbers) { return {Kind::kNumbers, Output(), std::move(numbers)}; }
  static ConcatPart Packed(Output scalar) { return {Kind::kPacked, scalar, {}}; }
};
Output EmitConcat(const Scope& scope, const std::vector<ConcatPart>& parts);

// tf.range(start, limit, delta) for int32: numbers become Consts.
Output EmitRange(const Scope& scope, std::variant<int, Output> start, std::variant<int, Output> limit);
// tf.reshape(x, numbers).
Output EmitReshape(const Scope& scope, Output x, std::vector<int32_t> shape);
// tf.reduce_prod of a vector.
Output EmitProd(const Scope& scope, Output vector);

}  // namespace muster
