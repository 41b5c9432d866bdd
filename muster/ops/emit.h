// More groups of nodes as the front end emits them (see graph/build/emit.h): what the gradients of
// indexing need.
#pragma once

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "muster/graph/build/emit.h"
#include "muster/graph/build/scope.h"

namespace muster {

// An op whose constant arguments live in a name scope of its own. The scope is entered first, the
// op takes its name.
class NamedOp {
 public:
  NamedOp(const Scope& scope, absl::string_view name) : inner_(scope.NameScope(name)) {}
  const Scope& inner() const { return inner_; }
  Output Op(absl::string_view op, std::vector<NodeInput> inputs, AttrMap attrs = {}) const {
    return OpNamed(inner_, op, std::move(inputs), std::move(attrs));
  }

 private:
  Scope inner_;
};

// tf.size and tf.rank (int32).
Output EmitSize(const Scope& scope, Output x);
Output EmitRank(const Scope& scope, Output x);
// tf.cast: nothing when x has the type already.
Output EmitCast(const Scope& scope, Output x, DType dtype);
// tf.gather along axis 0.
Output EmitGather(const Scope& scope, Output params, Output indices);
// tf.ones_like with another type.
Output EmitOnesLike(const Scope& scope, Output x, DType dtype);
Output EmitExpandDims(const Scope& scope, Output x, int axis);
// x op y with a Python number y, named `name` and "<name>/y"; y takes x's type.
Output EmitBinary(const Scope& scope, absl::string_view op, absl::string_view name, Output x,
                  double y);
// [1], a vector of one element of an index type.
Output EmitOne(const Scope& scope, DType dtype, absl::string_view name);

// One bound of a Python slice: a number, a scalar tensor, or absent.
using SliceBound = std::variant<std::monostate, int, Output>;
// x[begin:end] for a vector x.
Output EmitSlice(const Scope& scope, Output x, SliceBound begin, SliceBound end);
// x[index] with a tensor for the index: also makes "add" for its end.
Output EmitElementAt(const Scope& scope, Output x, Output index);

// One part of tf.concat(..., 0) of int32 vectors: a tensor, a list of numbers, or a list of one
// scalar tensor.
struct ConcatPart {
  enum class Kind { kTensor, kNumbers, kPacked };
  Kind kind;
  Output tensor;
  std::vector<int32_t> numbers;
  static ConcatPart Of(Output tensor) { return {Kind::kTensor, tensor, {}}; }
  static ConcatPart Numbers(std::vector<int32_t> numbers) {
    return {Kind::kNumbers, Output(), std::move(numbers)};
  }
  static ConcatPart Packed(Output scalar) { return {Kind::kPacked, scalar, {}}; }
};
Output EmitConcatOf(const Scope& scope, const std::vector<ConcatPart>& parts);

// tf.range(start, limit) for int32: numbers become Consts.
Output EmitRange(const Scope& scope, std::variant<int, Output> start,
                 std::variant<int, Output> limit);
// tf.reduce_prod of a vector.
Output EmitProd(const Scope& scope, Output vector);

}  // namespace muster
