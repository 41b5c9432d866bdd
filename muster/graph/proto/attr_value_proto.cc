#include "muster/graph/proto/attr_value_proto.h"

#include "absl/container/flat_hash_set.h"
#include "tensorflow/core/framework/attr_value.pb.h"
#include "tensorflow/core/framework/op_def.pb.h"

#include "muster/base/status.h"
#include "muster/graph/op_registry.h"
#include "muster/tensor/tensor_proto.h"

namespace muster {
namespace {

using ListProto = tensorflow::AttrValue::ListValue;

template <typename Map>
absl::StatusOr<AttrMap> AttrsFromProto(const Map& map) {
  AttrMap attrs;
  for (const auto& [name, value] : map) {
    absl::StatusOr<AttrValue> attr = AttrValueFromProto(value);
    if (!attr.ok()) return Prefixed(attr.status(), absl::StrCat("Attr '", name, "': "));
    attrs.emplace(name, *std::move(attr));
  }
  return attrs;
}

// Elements of messages, each read by `read`.
template <typename T, typename Field, typename Read>
absl::StatusOr<AttrValue> ReadEach(const Field& field, Read read) {
  std::vector<T> values;
  values.reserve(field.size());
  for (const auto& element : field) {
    ASSIGN_OR_RETURN(T value, read(element));
    values.push_back(std::move(value));
  }
  return AttrValue(std::move(values));
}

absl::StatusOr<AttrValue> ListFromProto(const ListProto& list) {
  const int kinds = (list.s_size() > 0) + (list.i_size() > 0) + (list.f_size() > 0) +
                    (list.b_size() > 0) + (list.type_size() > 0) + (list.shape_size() > 0) +
                    (list.tensor_size() > 0) + (list.func_size() > 0);
  if (kinds > 1)
    return InvalidArgument("AttrValue holds a list with elements of ", kinds, " kinds");
  if (list.s_size() > 0)
    return AttrValue(std::vector<std::string>(list.s().begin(), list.s().end()));
  if (list.i_size() > 0) return AttrValue(std::vector<int64_t>(list.i().begin(), list.i().end()));
  if (list.f_size() > 0) return AttrValue(std::vector<float>(list.f().begin(), list.f().end()));
  if (list.b_size() > 0) return AttrValue(std::vector<bool>(list.b().begin(), list.b().end()));
  if (list.type_size() > 0) {
    std::vector<DType> types;
    for (int type : list.type()) types.push_back(static_cast<DType>(type));
    return AttrValue(std::move(types));
  }
  if (list.shape_size() > 0) return ReadEach<PartialShape>(list.shape(), PartialShapeFromProto);
  if (list.tensor_size() > 0) return ReadEach<Tensor>(list.tensor(), TensorFromProto);
  if (list.func_size() > 0) return ReadEach<FunctionRef>(list.func(), FunctionRefFromProto);
  return AttrValue(EmptyList());
}

// Writes one kind of value each.
class Writer {
 public:
  explicit Writer(tensorflow::AttrValue& proto) : proto_(proto) {}
  absl::Status operator()(std::monostate) { return absl::OkStatus(); }
  absl::Status operator()(const std::string& value) {
    return proto_.set_s(value), absl::OkStatus();
  }
  absl::Status operator()(int64_t value) { return proto_.set_i(value), absl::OkStatus(); }
  absl::Status operator()(float value) { return proto_.set_f(value), absl::OkStatus(); }
  absl::Status operator()(bool value) { return proto_.set_b(value), absl::OkStatus(); }
  absl::Status operator()(DType value) {
    return proto_.set_type(static_cast<tensorflow::DataType>(value)), absl::OkStatus();
  }
  absl::Status operator()(const PartialShape& value) {
    return PartialShapeToProto(value, *proto_.mutable_shape()), absl::OkStatus();
  }
  absl::Status operator()(const Tensor& value) {
    return TensorToProto(value, TensorEncoding::kTyped, *proto_.mutable_tensor());
  }
  absl::Status operator()(const std::shared_ptr<const FunctionRef>& value) {
    return FunctionRefToProto(*value, *proto_.mutable_func());
  }
  absl::Status operator()(const AttrPlaceholder& value) {
    return proto_.set_placeholder(value.name), absl::OkStatus();
  }
  absl::Status operator()(EmptyList) { return list(), absl::OkStatus(); }
  absl::Status operator()(const std::vector<std::string>& values) {
    *list().mutable_s() = {values.begin(), values.end()};
    return absl::OkStatus();
  }
  absl::Status operator()(const std::vector<int64_t>& values) {
    *list().mutable_i() = {values.begin(), values.end()};
    return absl::OkStatus();
  }
  absl::Status operator()(const std::vector<float>& values) {
    *list().mutable_f() = {values.begin(), values.end()};
    return absl::OkStatus();
  }
  absl::Status operator()(const std::vector<bool>& values) {
    *list().mutable_b() = {values.begin(), values.end()};
    return absl::OkStatus();
  }
  absl::Status operator()(const std::vector<DType>& values) {
    ListProto& out = list();
    for (DType value : values) out.add_type(static_cast<tensorflow::DataType>(value));
    return absl::OkStatus();
  }
  absl::Status operator()(const std::vector<PartialShape>& values) {
    ListProto& out = list();
    for (const PartialShape& value : values) PartialShapeToProto(value, *out.add_shape());
    return absl::OkStatus();
  }
  absl::Status operator()(const std::vector<Tensor>& values) {
    ListProto& out = list();
    for (const Tensor& value : values)
      RETURN_IF_ERROR(TensorToProto(value, TensorEncoding::kTyped, *out.add_tensor()));
    return absl::OkStatus();
  }
  absl::Status operator()(const std::vector<FunctionRef>& values) {
    ListProto& out = list();
    for (const FunctionRef& value : values)
      RETURN_IF_ERROR(FunctionRefToProto(value, *out.add_func()));
    return absl::OkStatus();
  }

 private:
  ListProto& list() { return *proto_.mutable_list(); }
  tensorflow::AttrValue& proto_;
};

absl::StatusOr<ArgDef> ArgDefFromProto(const tensorflow::OpDef::ArgDef& proto) {
  ArgDef arg;
  arg.name = proto.name();
  arg.type = static_cast<DType>(proto.type());
  arg.type_attr = proto.type_attr();
  arg.number_attr = proto.number_attr();
  arg.type_list_attr = proto.type_list_attr();
  arg.is_ref = proto.is_ref();
  if (arg.type_attr.empty() && arg.type_list_attr.empty() &&
      (!IsValidDType(proto.type()) || IsRef(arg.type))) {
    return InvalidArgument("Argument '", arg.name, "' has no type");
  }
  return arg;
}

void ArgDefToProto(const ArgDef& arg, tensorflow::OpDef::ArgDef& proto) {
  proto.set_name(arg.name);
  proto.set_type(static_cast<tensorflow::DataType>(arg.type));
  proto.set_type_attr(arg.type_attr);
  proto.set_number_attr(arg.number_attr);
  proto.set_type_list_attr(arg.type_list_attr);
  proto.set_is_ref(arg.is_ref);
}

absl::Status AttrDefToProto(const AttrDef& attr, tensorflow::OpDef::AttrDef& proto) {
  proto.set_name(attr.name);
  proto.set_type(attr.type);
  if (attr.default_value)
    RETURN_IF_ERROR(AttrValueToProto(*attr.default_value, *proto.mutable_default_value()));
  if (attr.minimum) {
    proto.set_has_minimum(true);
    proto.set_minimum(*attr.minimum);
  }
  if (!attr.allowed_types.empty())
    RETURN_IF_ERROR(AttrValueToProto(attr.allowed_types, *proto.mutable_allowed_values()));
  if (!attr.allowed_strings.empty()) {
    RETURN_IF_ERROR(AttrValueToProto(attr.allowed_strings, *proto.mutable_allowed_values()));
  }
  return absl::OkStatus();
}

absl::StatusOr<AttrDef> AttrDefFromProto(const tensorflow::OpDef::AttrDef& proto) {
  AttrDef attr;
  attr.name = proto.name();
  attr.type = proto.type();
  if (proto.has_default_value()) {
    ASSIGN_OR_RETURN(attr.default_value, AttrValueFromProto(proto.default_value()));
  }
  if (proto.has_minimum()) attr.minimum = proto.minimum();
  for (int type : proto.allowed_values().list().type())
    attr.allowed_types.push_back(static_cast<DType>(type));
  for (const std::string& text : proto.allowed_values().list().s())
    attr.allowed_strings.push_back(text);
  return attr;
}

// The arguments or attributes of a signature have names of their own.
template <typename Defs>
absl::Status CheckNames(const char* kind, const Defs& defs) {
  absl::flat_hash_set<absl::string_view> names;
  for (const auto& def : defs) {
    if (!names.insert(def.name).second)
      return InvalidArgument("Duplicate name: ", kind, " '", def.name, "' is there twice");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<AttrValue> AttrValueFromProto(const tensorflow::AttrValue& proto) {
  switch (proto.value_case()) {
    case tensorflow::AttrValue::kS:
      return AttrValue(proto.s());
    case tensorflow::AttrValue::kI:
      return AttrValue(int64_t{proto.i()});
    case tensorflow::AttrValue::kF:
      return AttrValue(proto.f());
    case tensorflow::AttrValue::kB:
      return AttrValue(proto.b());
    case tensorflow::AttrValue::kType:
      return AttrValue(static_cast<DType>(proto.type()));
    case tensorflow::AttrValue::kShape: {
      ASSIGN_OR_RETURN(PartialShape shape, PartialShapeFromProto(proto.shape()));
      return AttrValue(std::move(shape));
    }
    case tensorflow::AttrValue::kTensor: {
      ASSIGN_OR_RETURN(Tensor tensor, TensorFromProto(proto.tensor()));
      return AttrValue(std::move(tensor));
    }
    case tensorflow::AttrValue::kFunc: {
      ASSIGN_OR_RETURN(FunctionRef function, FunctionRefFromProto(proto.func()));
      return AttrValue(std::move(function));
    }
    case tensorflow::AttrValue::kPlaceholder:
      return AttrValue(AttrPlaceholder{proto.placeholder()});
    case tensorflow::AttrValue::kList:
      return ListFromProto(proto.list());
    case tensorflow::AttrValue::VALUE_NOT_SET:
      break;
  }
  return AttrValue();
}

absl::Status AttrValueToProto(const AttrValue& value, tensorflow::AttrValue& proto) {
  proto.Clear();
  return std::visit(Writer(proto), value.value());
}

absl::StatusOr<FunctionRef> FunctionRefFromProto(const tensorflow::NameAttrList& proto) {
  FunctionRef function;
  function.name = proto.name();
  ASSIGN_OR_RETURN(function.attrs, AttrsFromProto(proto.attr()));
  return function;
}

absl::Status FunctionRefToProto(const FunctionRef& function, tensorflow::NameAttrList& proto) {
  proto.Clear();
  proto.set_name(function.name);
  for (const auto& [name, value] : function.attrs) {
    RETURN_IF_ERROR(AttrValueToProto(value, (*proto.mutable_attr())[name]));
  }
  return absl::OkStatus();
}

absl::StatusOr<OpDef> OpDefFromProto(const tensorflow::OpDef& proto) {
  OpDef op;
  op.name = proto.name();
  for (const auto& arg : proto.input_arg()) {
    ASSIGN_OR_RETURN(ArgDef parsed, ArgDefFromProto(arg));
    op.inputs.push_back(std::move(parsed));
  }
  for (const auto& arg : proto.output_arg()) {
    ASSIGN_OR_RETURN(ArgDef parsed, ArgDefFromProto(arg));
    op.outputs.push_back(std::move(parsed));
  }
  for (const auto& attr : proto.attr()) {
    ASSIGN_OR_RETURN(AttrDef parsed, AttrDefFromProto(attr));
    op.attrs.push_back(std::move(parsed));
  }
  RETURN_IF_ERROR(CheckNames("input", op.inputs));
  RETURN_IF_ERROR(CheckNames("output", op.outputs));
  RETURN_IF_ERROR(CheckNames("attr", op.attrs));
  op.is_stateful = proto.is_stateful();
  op.is_commutative = proto.is_commutative();
  op.is_aggregate = proto.is_aggregate();
  op.allows_uninitialized_input = proto.allows_uninitialized_input();
  op.is_distributed_communication = proto.is_distributed_communication();
  op.deprecated_at_version = proto.deprecation().version();
  op.deprecation_text = proto.deprecation().explanation();
  return op;
}

absl::Status OpDefToProto(const OpDef& op, tensorflow::OpDef& proto) {
  proto.Clear();
  proto.set_name(op.name);
  for (const ArgDef& arg : op.inputs) ArgDefToProto(arg, *proto.add_input_arg());
  for (const ArgDef& arg : op.outputs) ArgDefToProto(arg, *proto.add_output_arg());
  for (const AttrDef& attr : op.attrs) RETURN_IF_ERROR(AttrDefToProto(attr, *proto.add_attr()));
  proto.set_is_stateful(op.is_stateful);
  proto.set_is_commutative(op.is_commutative);
  proto.set_is_aggregate(op.is_aggregate);
  proto.set_allows_uninitialized_input(op.allows_uninitialized_input);
  proto.set_is_distributed_communication(op.is_distributed_communication);
  if (op.deprecated_at_version > 0) {
    proto.mutable_deprecation()->set_version(op.deprecated_at_version);
    proto.mutable_deprecation()->set_explanation(op.deprecation_text);
  }
  return absl::OkStatus();
}

absl::Status RegistryToProto(tensorflow::OpList& proto) {
  proto.Clear();
  for (const OpRegistration* registration : OpRegistry::Global().All()) {
    RETURN_IF_ERROR(OpDefToProto(registration->def, *proto.add_op()));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> SerializeRegistry() {
  tensorflow::OpList ops;
  RETURN_IF_ERROR(RegistryToProto(ops));
  return ops.SerializeAsString();
}

}  // namespace muster
