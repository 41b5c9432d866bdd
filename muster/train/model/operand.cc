#include "muster/train/model/operand.h"

#include <limits>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"

#include "muster/graph/gradients/gradients.h"
#include "muster/graph/op_registry.h"

namespace muster {
namespace {

DType TypeOf(Number number) {
  if (!number.is_integer) return DType::kFloat;
  const bool fits = number.value >= std::numeric_limits<int32_t>::min() &&
                    number.value <= std::numeric_limits<int32_t>::max();
  return fits ? DType::kInt32 : DType::kInt64;
}

}  // namespace

std::string PythonTypeName(DType dtype) {
  switch (BaseType(dtype)) {
    case DType::kFloat:
      return "float32";
    case DType::kDouble:
      return "float64";
    case DType::kHalf:
      return "float16";
    default:
      return DTypeName(BaseType(dtype));
  }
}

DType Operand::dtype() const {
  if (const Output* o = output()) return o->dtype();
  if (const Tensor* t = tensor()) return t->dtype();
  if (const TrainVariable* v = variable()) return v->dtype;
  return DType::kInvalid;
}

Output Convert(const Scope& scope, const Operand& value, absl::string_view name, DType dtype) {
  if (const Number* number = value.number()) {
    return EmitScalar(scope, dtype == DType::kInvalid ? TypeOf(*number) : dtype, number->value,
                      name);
  }
  if (const Output* output = value.output()) return *output;
  if (const Tensor* tensor = value.tensor()) return scope.Const(*tensor, name);
  return Value(scope, *value.variable());
}

Operand Cast(const Scope& scope, const Operand& value, DType dtype, absl::string_view name) {
  const TrainVariable* variable = value.variable();
  const bool as_it_is = value.output() != nullptr || (variable != nullptr && variable->is_resource);
  if (as_it_is && value.dtype() == dtype) return value;
  const Scope own = scope.NameScope(name);
  const Output x = Convert(own, value, "x");
  if (!x || x.base_dtype() == dtype) return x;
  return OpNamed(own, "Cast", {x}, {{"DstT", dtype}});
}

Output CastToOutput(const Scope& scope, const Operand& value, DType dtype) {
  return Convert(scope, Cast(scope, value, dtype));
}

Output Operator(const Scope& scope, absl::string_view op, absl::string_view name, const Operand& x,
                const Operand& y) {
  if (!scope.status().ok()) return Output();
  const bool left_is_typed = x.variable() != nullptr || x.output() != nullptr;
  Operand left = x;
  Operand right = y;
  if (x.variable() != nullptr) {
    left = Value(scope, *x.variable());
  } else if (!left_is_typed && y.variable() != nullptr) {
    right = Value(scope, *y.variable());
  }
  const Scope own = scope.NameScope(name);
  Output a, b;
  if (left_is_typed) {
    a = Convert(own, left);
    b = Convert(own, right, "y", BaseType(left.dtype()));
  } else {
    b = Convert(own, right);
    a = Convert(own, left, "x", b ? b.base_dtype() : DType::kFloat);
  }
  if (!a || !b) return Output();
  if (a.base_dtype() != b.base_dtype()) {
    scope.UpdateStatus(WithErrorKind(
        name == "truediv"
            ? InvalidArgument("x and y must have the same dtype, got tf.",
                              PythonTypeName(a.dtype()), " != tf.", PythonTypeName(b.dtype()))
            : InvalidArgument("Input 'y' of '", op, "' Op has type ", PythonTypeName(b.dtype()),
                              " that does not match type ", PythonTypeName(a.dtype()),
                              " of argument 'x'."),
        kTypeError));
    return Output();
  }
  return OpNamed(own, op, {a, b});
}

Node* CallOp(const Scope& scope, absl::string_view op,
             const std::vector<std::pair<std::string, Operand>>& arguments, AttrMap attrs,
             absl::string_view name) {
  if (!scope.status().ok()) return nullptr;
  const absl::StatusOr<const OpRegistration*> registration = OpRegistry::Global().Lookup(op);
  if (!registration.ok()) {
    scope.UpdateStatus(registration.status());
    return nullptr;
  }
  const Scope own = scope.NameScope(name.empty() ? op : name);
  std::vector<NodeInput> inputs;
  // Type attributes that an earlier argument has decided, and which one that was.
  absl::flat_hash_map<std::string, std::pair<DType, std::string>> types;
  for (const ArgDef& arg : (*registration)->def.inputs) {
    const auto given = std::find_if(arguments.begin(), arguments.end(), [&](const auto& argument) {
      return argument.first == arg.name;
    });
    if (given == arguments.end()) {
      scope.UpdateStatus(InvalidArgument("No argument for input '", arg.name, "' of ", op));
      return nullptr;
    }
    const TrainVariable* variable = given->second.variable();
    const bool takes_handle = arg.is_ref || arg.type == DType::kResource;
    const auto known = types.find(arg.type_attr);
    const DType wanted = known == types.end() ? arg.type : known->second.first;
    const Output input = takes_handle && variable != nullptr
                             ? variable->handle
                             : Convert(own, given->second, arg.name, wanted);
    if (!input) return nullptr;
    if (known != types.end() && input.base_dtype() != wanted) {
      scope.UpdateStatus(WithErrorKind(
          InvalidArgument("Input '", arg.name, "' of '", op, "' Op has type ",
                          PythonTypeName(input.dtype()), " that does not match type ",
                          PythonTypeName(wanted), " of argument '", known->second.second, "'."),
          kTypeError));
      return nullptr;
    }
    if (!arg.type_attr.empty()) {
      types.try_emplace(arg.type_attr, input.base_dtype(), arg.name);
    }
    inputs.emplace_back(input);
  }
  return AddNamed(own, op, std::move(inputs), std::move(attrs));
}

Output CallOpOutput(const Scope& scope, absl::string_view op,
                    const std::vector<std::pair<std::string, Operand>>& arguments, AttrMap attrs,
                    absl::string_view name) {
  Node* node = CallOp(scope, op, arguments, std::move(attrs), name);
  return node == nullptr ? Output() : node->output(0);
}

}  // namespace muster
