// What the front end's functions take in place of a tensor: a tensor, a variable that is read where
// it is used, or a number that becomes a constant there. The functions below emit the nodes of
// Python's operators and generated op functions, with their names.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "muster/graph/build/emit.h"
#include "muster/graph/build/scope.h"
#include "muster/train/model/variables.h"

namespace muster {

// A number that has no type of its own yet: float or int32 where nothing else decides.
struct Number {
  double value = 0;
  bool is_integer = false;
};

class Operand {
 public:
  // NOLINTBEGIN(google-explicit-constructor)
  Operand(double value) : value_(Number{value, false}) {}
  Operand(int value) : value_(Number{static_cast<double>(value), true}) {}
  Operand(Number value) : value_(value) {}
  Operand(Output value) : value_(value) {}
  Operand(Tensor value) : value_(std::move(value)) {}
  Operand(TrainVariable value) : value_(std::move(value)) {}
  // NOLINTEND(google-explicit-constructor)

  const Number* number() const { return std::get_if<Number>(&value_); }
  const Output* output() const { return std::get_if<Output>(&value_); }
  const Tensor* tensor() const { return std::get_if<Tensor>(&value_); }
  const TrainVariable* variable() const { return std::get_if<TrainVariable>(&value_); }
  // kInvalid for numbers.
  DType dtype() const;

 private:
  std::variant<Number, Output, Tensor, TrainVariable> value_;
};

// convert_to_tensor: a Const called `name` for numbers, of type `dtype` where that is given.
Output Convert(const Scope& scope, const Operand& value, absl::string_view name = "Const",
               DType dtype = DType::kInvalid);
// tf.cast: nothing where the type is right already; a variable then stays one.
Operand Cast(const Scope& scope, const Operand& value, DType dtype,
             absl::string_view name = "Cast");
// "float32" where DTypeName says "float": what Python's messages call a type.
std::string PythonTypeName(DType dtype);
// Cast, converted.
Output CastToOutput(const Scope& scope, const Operand& value, DType dtype);

// Python's x * y and so on: `name` is the operator's ("mul", "truediv"). A variable on the left is
// read before the operator's scope opens, as Python does; a number takes the type of the other.
Output Operator(const Scope& scope, absl::string_view op, absl::string_view name, const Operand& x,
                const Operand& y);
inline Output Times(const Scope& s, const Operand& x, const Operand& y) {
  return Operator(s, "Mul", "mul", x, y);
}
inline Output Minus(const Scope& s, const Operand& x, const Operand& y) {
  return Operator(s, "Sub", "sub", x, y);
}
inline Output Plus(const Scope& s, const Operand& x, const Operand& y) {
  return Operator(s, "AddV2", "add", x, y);
}
inline Output Over(const Scope& s, const Operand& x, const Operand& y) {
  return Operator(s, "RealDiv", "truediv", x, y);
}

// A generated op function called with named arguments: they are converted in the op's own scope in
// the order of the op's definition. `name` may end in "/"; "" is the op's name. TypeError where
// types do not agree.
Node* CallOp(const Scope& scope, absl::string_view op,
             const std::vector<std::pair<std::string, Operand>>& arguments, AttrMap attrs = {},
             absl::string_view name = "");
Output CallOpOutput(const Scope& scope, absl::string_view op,
                    const std::vector<std::pair<std::string, Operand>>& arguments,
                    AttrMap attrs = {}, absl::string_view name = "");

}  // namespace muster
