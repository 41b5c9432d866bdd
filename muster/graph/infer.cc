#include "muster/graph/infer.h"

#include <algorithm>

#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

#include "muster/base/status.h"
#include "muster/graph/op_registry.h"

namespace muster {
namespace {

// Sets a type attribute, or checks that it agrees with what is there.
absl::Status Unify(const OpDef& op, absl::string_view node_name, const ArgDef& arg,
                   absl::string_view attr, const AttrValue& value, AttrMap& attrs) {
  const auto [at, added] = attrs.try_emplace(std::string(attr), value);
  if (added || at->second == value) return absl::OkStatus();
  return InvalidArgument("Input '", arg.name, "' of node '", node_name, "' (op ", op.name,
                         ") gives attr ", attr, " = ", value.ToString(), ", but it is ",
                         at->second.ToString());
}

absl::Status UnifyFromInput(const OpDef& op, absl::string_view node_name, const ArgDef& arg,
                            const NodeInput& input, AttrMap& attrs) {
  const std::vector<Output>& outputs = input.outputs();
  if (!arg.number_attr.empty()) {
    RETURN_IF_ERROR(Unify(op, node_name, arg, arg.number_attr,
                          AttrValue(static_cast<int64_t>(outputs.size())), attrs));
  } else if (!arg.type_list_attr.empty()) {
    std::vector<DType> types;
    for (const Output& output : outputs) types.push_back(output.base_dtype());
    return Unify(op, node_name, arg, arg.type_list_attr, AttrValue(std::move(types)), attrs);
  } else if (outputs.size() != 1) {
    return InvalidArgument("Input '", arg.name, "' of node '", node_name, "' (op ", op.name,
                           ") takes one tensor, got ", outputs.size());
  }
  if (arg.type_attr.empty()) return absl::OkStatus();
  for (const Output& output : outputs) {
    RETURN_IF_ERROR(
        Unify(op, node_name, arg, arg.type_attr, AttrValue(output.base_dtype()), attrs));
  }
  return absl::OkStatus();
}

bool KindFits(const AttrDef& attr, const AttrValue& value) {
  const std::string kind = value.kind();
  return kind == attr.type || (kind == "list()" && absl::StartsWith(attr.type, "list(")) ||
         kind == "placeholder";
}

int64_t ListLength(const AttrValue& value) {
  return std::visit(
      [](const auto& v) -> int64_t {
        if constexpr (requires { v.size(); }) return static_cast<int64_t>(v.size());
        return 0;
      },
      value.value());
}

template <typename T, typename Name>
absl::Status CheckAllowed(const AttrDef& attr, const OpDef& op, absl::string_view node_name,
                          const T& value, const std::vector<T>& allowed, Name name) {
  if (allowed.empty() || std::find(allowed.begin(), allowed.end(), value) != allowed.end())
    return absl::OkStatus();
  std::vector<std::string> names;
  for (const T& one : allowed) names.push_back(std::string(name(one)));
  return InvalidArgument("Value for attr '", attr.name, "' of ", name(value),
                         " is not in the list of allowed values: ", absl::StrJoin(names, ", "),
                         "\n\t; NodeDef: {{node ", node_name, "}}; ", SummarizeOpDef(op));
}

absl::Status CheckDType(DType type) {
  const int number = static_cast<int>(type);
  if (number == 0) return InvalidArgument("AttrValue has invalid DataType");
  if (!IsValidDType(number))
    return InvalidArgument("AttrValue has invalid DataType enum: ", number);
  if (IsRef(type))
    return InvalidArgument("AttrValue must not have reference type value of ", DTypeName(type));
  return absl::OkStatus();
}

// The value is of the attribute's kind, and its data types exist.
absl::Status CheckKind(const AttrDef& attr, const AttrValue& value) {
  if (!KindFits(attr, value)) {
    return InvalidArgument("AttrValue had value with type '", value.kind(), "' when '", attr.type,
                           "' expected");
  }
  if (const DType* type = value.get<DType>()) return CheckDType(*type);
  if (const auto* types = value.get<std::vector<DType>>()) {
    for (DType type : *types) RETURN_IF_ERROR(CheckDType(type));
  }
  return absl::OkStatus();
}

absl::Status CheckValue(const AttrDef& attr, const OpDef& op, absl::string_view node_name,
                        const AttrValue& value) {
  if (absl::Status kind = CheckKind(attr, value); !kind.ok()) {
    return Suffixed(kind, absl::StrCat("\n\t for attr '", attr.name, "'\n\t; NodeDef: {{node ",
                                       node_name, "}}; ", SummarizeOpDef(op)));
  }
  const auto type_name = [](DType t) { return DTypeName(t); };
  const auto quoted = [](const std::string& s) { return absl::StrCat("\"", s, "\""); };
  if (const DType* type = value.get<DType>()) {
    RETURN_IF_ERROR(CheckAllowed(attr, op, node_name, *type, attr.allowed_types, type_name));
  }
  if (const auto* types = value.get<std::vector<DType>>()) {
    for (DType type : *types)
      RETURN_IF_ERROR(CheckAllowed(attr, op, node_name, type, attr.allowed_types, type_name));
  }
  if (const std::string* text = value.get<std::string>()) {
    RETURN_IF_ERROR(CheckAllowed(attr, op, node_name, *text, attr.allowed_strings, quoted));
  }
  if (const auto* texts = value.get<std::vector<std::string>>()) {
    for (const std::string& text : *texts) {
      RETURN_IF_ERROR(CheckAllowed(attr, op, node_name, text, attr.allowed_strings, quoted));
    }
  }
  if (attr.minimum && value.kind() != "placeholder") {
    const int64_t* number = value.get<int64_t>();
    const int64_t given = number != nullptr ? *number : ListLength(value);
    if (given < *attr.minimum) {
      return InvalidArgument(number != nullptr ? "Value" : "Length", " for attr '", attr.name,
                             "' of ", given, " must be at least minimum ", *attr.minimum,
                             "\n\t; NodeDef: {{node ", node_name, "}}; ", SummarizeOpDef(op));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ResolveAttrs(const OpDef& op, const std::vector<NodeInput>& inputs,
                          absl::string_view node_name, AttrMap& attrs) {
  if (inputs.size() != op.inputs.size()) {
    return InvalidArgument("Node '", node_name, "' (op ", op.name, ") takes ", op.inputs.size(),
                           " inputs, got ", inputs.size());
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    for (const Output& output : inputs[i].outputs()) {
      if (output.node == nullptr || output.index < 0 ||
          output.index >= output.node->num_outputs()) {
        return InvalidArgument("Input '", op.inputs[i].name, "' of node '", node_name, "' (op ",
                               op.name, ") is not an output of a node");
      }
    }
    RETURN_IF_ERROR(UnifyFromInput(op, node_name, op.inputs[i], inputs[i], attrs));
  }
  RETURN_IF_ERROR(CompleteAttrs(op, node_name, attrs));
  // An attribute that the inputs decided may be unknown to TensorFlow 1.15: it is left out of the
  // node while it has its default value.
  for (const AttrDef& attr : op.attrs) {
    if (!attr.since_2x || !attr.default_value) continue;
    const auto found = attrs.find(attr.name);
    if (found != attrs.end() && found->second == *attr.default_value) attrs.erase(found);
  }
  return absl::OkStatus();
}

absl::Status CompleteAttrs(const OpDef& op, absl::string_view node_name, AttrMap& attrs) {
  std::vector<std::string> missing;
  for (const AttrDef& attr : op.attrs) {
    const auto found = attrs.find(attr.name);
    if (found != attrs.end()) {
      RETURN_IF_ERROR(CheckValue(attr, op, node_name, found->second));
    } else if (!attr.default_value) {
      missing.push_back(absl::StrCat("'", attr.name, "'"));
    } else if (!attr.since_2x) {
      attrs.emplace(attr.name, *attr.default_value);
    }
  }
  if (!missing.empty()) {
    return InvalidArgument("NodeDef missing attr", missing.size() > 1 ? "s " : " ",
                           absl::StrJoin(missing, ", "), " from ", SummarizeOpDef(op),
                           "; NodeDef: {{node ", node_name, "}}");
  }
  return absl::OkStatus();
}

absl::Status CheckInputs(const Node& node) {
  const std::vector<DType>& wanted = node.input_types();
  if (static_cast<int>(wanted.size()) != node.num_inputs()) {
    const auto type_name = [](std::string* out, DType type) {
      absl::StrAppend(out, DTypeName(type));
    };
    return InvalidArgument("NodeDef expected inputs '", absl::StrJoin(wanted, ", ", type_name),
                           "' do not match ", node.num_inputs(), " inputs specified; ",
                           SummarizeOpDef(node.def()), "; NodeDef: {{node ", node.name(), "}}");
  }
  const bool is_merge = node.op() == "Merge" || node.op() == "RefMerge";
  for (int i = 0; i < node.num_inputs(); ++i) {
    if (!node.input(i)) {
      if (is_merge) continue;
      return InvalidArgument("Node '", node.name(),
                             "' had a back edge, but only Merge nodes can have back edges.");
    }
    if (&node.input(i).node->graph() != &node.graph()) {
      return InvalidArgument("Input ", i, " of node ", node.name(), ", ", node.input(i).name(),
                             ", must be from the same graph as the node.");
    }
    const DType given = node.input(i).dtype();
    if (BaseType(given) != BaseType(wanted[i]) || (IsRef(wanted[i]) && !IsRef(given))) {
      return InvalidArgument("Input ", i, " of node ", node.name(), " was passed ",
                             DTypeName(given), " from ", node.input(i).name(),
                             " incompatible with expected ", DTypeName(wanted[i]), ".");
    }
  }
  return absl::OkStatus();
}

static thread_local bool keeps_shape_errors = false;

absl::Status InferShapes(Node& node) {
  const ShapeFunction rule = node.registration().shape;
  if (rule == nullptr) return absl::OkStatus();
  ShapeContext context(node);
  const absl::Status status = rule(context);
  if (status.ok()) return status;
  std::vector<std::string> shapes;
  for (const Output& input : node.inputs())
    shapes.push_back(input.shape().known_rank() ? input.shape().ToString() : "?");
  std::string suffix = absl::StrCat(" for '", node.name(), "' (op: '", node.op(),
                                    "') with input shapes: ", absl::StrJoin(shapes, ", "));
  // Small constant inputs that the rule read are part of the reason.
  std::vector<std::string> values;
  for (int index = 0; index < node.num_inputs(); ++index) {
    const auto& used = context.constants_used();
    const auto at =
        std::find_if(used.begin(), used.end(), [&](const auto& u) { return u.first == index; });
    if (at == used.end() || at->second.num_elements() > 20) continue;
    values.push_back(absl::StrCat("input[", index, "] = <", at->second.SummarizeValues(20), ">"));
  }
  absl::StrAppend(&suffix,
                  values.empty() ? ""
                                 : absl::StrCat(" and with computed input tensors: ",
                                                absl::StrJoin(values, ", ")),
                  ".");
  if (!keeps_shape_errors) return Suffixed(status, suffix);
  node.SetAttr(kShapeError, std::string(Suffixed(status, suffix).message()));
  for (int i = 0; i < node.num_outputs(); ++i) node.set_output_shape(i, PartialShape());
  return absl::OkStatus();
}

KeepShapeErrors::KeepShapeErrors() : before_(keeps_shape_errors) {
  keeps_shape_errors = true;
}
KeepShapeErrors::~KeepShapeErrors() {
  keeps_shape_errors = before_;
}

absl::Status KeptShapeError(const Node& node) {
  const AttrValue* const error = node.FindAttr(kShapeError);
  const std::string* const text = error == nullptr ? nullptr : error->get<std::string>();
  return text == nullptr ? absl::OkStatus() : InvalidArgument(*text);
}

std::string SummarizeNode(const Node& node) {
  std::vector<std::string> attrs;
  for (const auto& [name, value] : node.attrs())
    attrs.push_back(absl::StrCat(name, "=", value.ToString()));
  std::vector<std::string> inputs;
  for (const Output& input : node.inputs()) {
    inputs.push_back(!input ? "?" : input.index == 0 ? input.node->name() : input.name());
  }
  for (const Node* before : node.control_inputs())
    inputs.push_back(absl::StrCat("^", before->name()));
  return absl::StrCat("{{node ", node.name(), "}} = ", node.op(), "[", absl::StrJoin(attrs, ", "),
                      "](", absl::StrJoin(inputs, ", "), ")");
}

}  // namespace muster
