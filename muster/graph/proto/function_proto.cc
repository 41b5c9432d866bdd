#include "muster/graph/proto/function_proto.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "tensorflow/core/framework/function.pb.h"
#include "tensorflow/core/framework/graph.pb.h"

#include "muster/base/status.h"
#include "muster/graph/op_registry.h"
#include "muster/graph/proto/attr_value_proto.h"
#include "muster/graph/proto/graph_proto.h"
#include "muster/tensor/message_proto.h"

namespace muster {
namespace {

using AttrProto = tensorflow::AttrValue;
using AttrProtoMap = google::protobuf::Map<std::string, AttrProto>;

// The same bytes for equal functions, whatever the order of their maps.
std::string Canonical(const tensorflow::FunctionDef& function) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream out(&stream);
    out.SetSerializationDeterministic(true);
    function.SerializeToCodedStream(&out);
  }
  return bytes;
}

absl::StatusOr<std::unique_ptr<Function>> ReadFunction(const tensorflow::FunctionDef& proto) {
  auto function = std::make_unique<Function>();
  ASSIGN_OR_RETURN(function->signature, OpDefFromProto(proto.signature()));
  for (const auto& [name, value] : proto.attr()) {
    ASSIGN_OR_RETURN(AttrValue attr, AttrValueFromProto(value));
    function->attrs.emplace(name, std::move(attr));
  }
  if (proto.ByteSizeLong() > kMaxMessageBytes) {
    return InvalidArgument("Function '", proto.signature().name(), "' takes ", proto.ByteSizeLong(),
                           " bytes; the limit is ", kMaxMessageBytes);
  }
  function->serialized = Canonical(proto);
  OpRegistration registration;
  registration.def = function->signature;
  registration.shape = UnknownShape;
  function->registration = std::make_shared<const OpRegistration>(std::move(registration));
  return function;
}

// Puts `values` in where `attr` names an attribute of the function.
absl::Status Substitute(const AttrProtoMap& values, AttrProto& attr) {
  const auto in_function = [&](tensorflow::NameAttrList& function) -> absl::Status {
    for (auto& [name, value] : *function.mutable_attr()) RETURN_IF_ERROR(Substitute(values, value));
    return absl::OkStatus();
  };
  if (attr.value_case() == AttrProto::kPlaceholder) {
    const auto found = values.find(attr.placeholder());
    if (found == values.end())
      return InvalidArgument("Failed to bind all placeholders: no attr '", attr.placeholder(), "'");
    const AttrProto value = found->second;
    attr = value;
  } else if (attr.value_case() == AttrProto::kFunc) {
    return in_function(*attr.mutable_func());
  } else if (attr.value_case() == AttrProto::kList) {
    for (auto& function : *attr.mutable_list()->mutable_func())
      RETURN_IF_ERROR(in_function(function));
  }
  return absl::OkStatus();
}

// One instantiation: writes the body as a GraphDef, which ImportGraph then reads.
class Instantiation {
 public:
  Instantiation(const Graph& library, const FunctionRef& function)
      : library_(library), function_(function) {}

  absl::StatusOr<std::unique_ptr<Graph>> Run() {
    const auto found = library_.functions().find(function_.name);
    if (found == library_.functions().end())
      return NotFound("Function ", function_.name, " is not defined.");
    if (!body_.ParseFromString(found->second->serialized)) {
      return Internal("Function '", function_.name, "' cannot be parsed");
    }
    signature_ = &found->second->signature;
    RETURN_IF_ERROR(BindAttrs());
    RETURN_IF_ERROR(AddArgs());
    RETURN_IF_ERROR(AddNodes());
    RETURN_IF_ERROR(AddResults());
    graph_def_.mutable_versions()->set_producer(library_.versions().producer);
    auto graph = std::make_unique<Graph>();
    ImportOptions options;
    options.allow_internal_names = true;
    options.validate_colocation = false;
    options.adopt_versions = true;
    absl::StatusOr<ImportResults> imported = ImportGraph(*graph, graph_def_, options);
    if (!imported.ok())
      return Prefixed(imported.status(), absl::StrCat("In function '", function_.name, "': "));
    return graph;
  }

 private:
  // A node of the body: where each of its output arguments begins.
  struct Outputs {
    const OpDef* op;
    std::vector<ArgRange> ranges;
  };

  absl::Status BindAttrs() {
    attrs_ = function_.attrs;
    for (const AttrDef& attr : signature_->attrs) {
      if (attrs_.contains(attr.name)) continue;
      if (!attr.default_value) {
        return InvalidArgument("Attr ", attr.name, " is not found from ",
                               SummarizeOpDef(*signature_));
      }
      attrs_.emplace(attr.name, *attr.default_value);
    }
    for (const auto& [name, value] : attrs_)
      RETURN_IF_ERROR(AttrValueToProto(value, attr_protos_[name]));
    return absl::OkStatus();
  }

  tensorflow::NodeDef& AddEndpoint(std::string name, const char* op, DType type, int index) {
    tensorflow::NodeDef& node = *graph_def_.add_node();
    node.set_name(std::move(name));
    node.set_op(op);
    (*node.mutable_attr())["T"].set_type(static_cast<tensorflow::DataType>(type));
    (*node.mutable_attr())["index"].set_i(index);
    return node;
  }

  absl::Status AddArgs() {
    ASSIGN_OR_RETURN(std::vector<ArgRange> ranges, ArgRanges(signature_->inputs, attrs_));
    ASSIGN_OR_RETURN(std::vector<DType> types, ArgTypes(signature_->inputs, attrs_));
    for (size_t i = 0; i < ranges.size(); ++i) {
      const ArgDef& arg = signature_->inputs[i];
      std::vector<std::string>& names = args_[arg.name];
      for (int k = ranges[i].begin; k < ranges[i].end; ++k) {
        names.push_back(arg.is_list() ? absl::StrCat(arg.name, "_", k - ranges[i].begin)
                                      : arg.name);
        tensorflow::NodeDef& node = AddEndpoint(names.back(), "_Arg", types[k], k);
        const auto given = body_.arg_attr().find(static_cast<uint32_t>(k));
        if (given == body_.arg_attr().end()) continue;
        for (const auto& [name, value] : given->second.attr()) (*node.mutable_attr())[name] = value;
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<const OpDef*> FindOp(const std::string& op) {
    const auto function = library_.functions().find(op);
    if (function == library_.functions().end()) {
      ASSIGN_OR_RETURN(const OpRegistration* registration, OpRegistry::Global().Lookup(op));
      return &registration->def;
    }
    if (copied_.insert(op).second && !graph_def_.mutable_library()->add_function()->ParseFromString(
                                         function->second->serialized)) {
      return Internal("Function '", op, "' cannot be parsed");
    }
    return &function->second->signature;
  }

  absl::Status AddNodes() {
    const int first = graph_def_.node_size();
    for (const tensorflow::NodeDef& source : body_.node_def()) {
      tensorflow::NodeDef& node = *graph_def_.add_node();
      node = source;
      node.mutable_attr()->erase("_input_shapes");  // see ImportGraph
      AttrMap attrs;
      for (auto& [name, value] : *node.mutable_attr()) {
        RETURN_IF_ERROR(Substitute(attr_protos_, value));
        ASSIGN_OR_RETURN(AttrValue attr, AttrValueFromProto(value));
        attrs.emplace(name, std::move(attr));
      }
      ASSIGN_OR_RETURN(const OpDef* op, FindOp(node.op()));
      for (const AttrDef& attr : op->attrs) {
        if (attr.default_value) attrs.try_emplace(attr.name, *attr.default_value);
      }
      ASSIGN_OR_RETURN(std::vector<ArgRange> ranges, ArgRanges(op->outputs, attrs));
      outputs_[node.name()] = {op, std::move(ranges)};
    }
    for (int i = first; i < graph_def_.node_size(); ++i) {
      for (std::string& input : *graph_def_.mutable_node(i)->mutable_input()) {
        ASSIGN_OR_RETURN(input, FlatName(input, 0));
      }
    }
    return absl::OkStatus();
  }

  // "arg", "arg:k", "node:out:k" or "^node" as a GraphDef writes it; `offset` counts on within a
  // list.
  absl::StatusOr<std::string> FlatName(const std::string& text, int offset) const {
    if (absl::StartsWith(text, "^")) return text;
    const std::vector<std::string> parts = absl::StrSplit(text, ':');
    int index = 0;
    const auto read_index = [&](size_t at) {
      return parts.size() <= at || absl::SimpleAtoi(parts[at], &index);
    };
    const auto unknown = [&] {
      return InvalidArgument("Input '", text, "' in function '", function_.name,
                             "' is neither an argument nor an output");
    };
    if (const auto arg = args_.find(parts[0]); arg != args_.end() && parts.size() <= 2) {
      if (!read_index(1)) return unknown();
      const int64_t at = int64_t{index} + offset;
      if (at < 0 || at >= static_cast<int64_t>(arg->second.size())) return unknown();
      return arg->second[static_cast<size_t>(at)];
    }
    const auto node = outputs_.find(parts[0]);
    if (node == outputs_.end() || parts.size() < 2 || parts.size() > 3 || !read_index(2))
      return unknown();
    const int arg = node->second.op->FindOutput(parts[1]);
    if (arg < 0) return unknown();
    const ArgRange range = node->second.ranges[static_cast<size_t>(arg)];
    const int64_t at = int64_t{range.begin} + index + offset;
    if (index < 0 || at >= range.end) return unknown();
    return absl::StrCat(parts[0], ":", at);
  }

  absl::Status AddResults() {
    ASSIGN_OR_RETURN(std::vector<ArgRange> ranges, ArgRanges(signature_->outputs, attrs_));
    ASSIGN_OR_RETURN(std::vector<DType> types, ArgTypes(signature_->outputs, attrs_));
    for (size_t i = 0; i < ranges.size(); ++i) {
      const ArgDef& arg = signature_->outputs[i];
      const auto source = body_.ret().find(arg.name);
      if (source == body_.ret().end())
        return InvalidArgument("Return ", arg.name, " missing from function '", function_.name,
                               "'");
      for (int k = ranges[i].begin; k < ranges[i].end; ++k) {
        const int offset = k - ranges[i].begin;
        std::string name =
            absl::StrCat(arg.name, "_RetVal", arg.is_list() ? absl::StrCat("_", offset) : "");
        tensorflow::NodeDef& node = AddEndpoint(std::move(name), "_Retval", types[k], k);
        ASSIGN_OR_RETURN(*node.add_input(), FlatName(source->second, offset));
        std::vector<std::string> controls;
        for (const auto& [key, value] : body_.control_ret())
          controls.push_back(absl::StrCat("^", value));
        std::sort(controls.begin(), controls.end());
        for (std::string& control : controls) node.add_input(std::move(control));
      }
    }
    return absl::OkStatus();
  }

  const Graph& library_;
  const FunctionRef& function_;
  tensorflow::FunctionDef body_;
  const OpDef* signature_ = nullptr;
  AttrMap attrs_;
  AttrProtoMap attr_protos_;
  absl::flat_hash_map<std::string, std::vector<std::string>>
      args_;  // argument -> names of its _Arg nodes
  absl::flat_hash_map<std::string, Outputs> outputs_;
  absl::flat_hash_set<std::string> copied_;
  tensorflow::GraphDef graph_def_;
};

}  // namespace

absl::StatusOr<std::vector<std::string>> ImportFunctions(
    Graph& into, const tensorflow::FunctionDefLibrary& proto) {
  absl::flat_hash_map<std::string, std::unique_ptr<Function>> added;
  for (const tensorflow::FunctionDef& definition : proto.function()) {
    const std::string& name = definition.signature().name();
    if (name.empty()) return InvalidArgument("A function of the library has no name");
    if (OpRegistry::Global().Find(name) != nullptr) {
      return InvalidArgument("Cannot add function '", name,
                             "' because an op with the same name already exists.");
    }
    absl::StatusOr<std::unique_ptr<Function>> function = ReadFunction(definition);
    if (!function.ok()) return Prefixed(function.status(), absl::StrCat("Function '", name, "': "));
    const auto known = into.functions().find(name);
    const auto twin = added.find(name);
    const Function* other = known != into.functions().end() ? known->second.get()
                            : twin != added.end()           ? twin->second.get()
                                                            : nullptr;
    if (other != nullptr && other->serialized != (*function)->serialized) {
      return InvalidArgument("Cannot add function '", name,
                             "' because a different function with the same name already exists.");
    }
    if (other == nullptr) added[name] = *std::move(function);
  }
  absl::flat_hash_map<absl::string_view, absl::string_view> gradients;
  for (const tensorflow::GradientDef& gradient : proto.gradient()) {
    const auto [known, is_new] =
        gradients.try_emplace(gradient.function_name(), gradient.gradient_func());
    if (!is_new && known->second != gradient.gradient_func()) {
      return InvalidArgument("Cannot assign gradient function '", gradient.gradient_func(),
                             "' to '", gradient.function_name(),
                             "' because it already has gradient function '", known->second, "'");
    }
    const auto function = added.find(gradient.function_name());
    if (function != added.end()) function->second->gradient = gradient.gradient_func();
  }
  std::vector<std::string> names;
  for (auto& [name, function] : added) {
    names.push_back(name);
    into.functions()[name] = std::move(function);
  }
  return names;
}

absl::Status FunctionsToProto(const Graph& graph, tensorflow::FunctionDefLibrary& proto) {
  proto.Clear();
  std::vector<std::string> names;
  for (const auto& [name, function] : graph.functions()) names.push_back(name);
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) {
    const Function& function = *graph.functions().at(name);
    if (!proto.add_function()->ParseFromString(function.serialized)) {
      return Internal("Function '", name, "' cannot be parsed");
    }
    if (function.gradient.empty()) continue;
    proto.add_gradient()->set_function_name(name);
    proto.mutable_gradient(proto.gradient_size() - 1)->set_gradient_func(function.gradient);
  }
  return absl::OkStatus();
}

void CopyFunctions(const Graph& from, Graph& to) {
  for (const auto& [name, function] : from.functions()) {
    std::unique_ptr<Function>& copy = to.functions()[name];
    if (copy != nullptr) continue;
    copy = std::make_unique<Function>();
    copy->signature = function->signature;
    copy->attrs = function->attrs;
    copy->serialized = function->serialized;
    copy->gradient = function->gradient;
    copy->registration = function->registration;
  }
}

absl::StatusOr<std::vector<std::string>> ControlResults(const Graph& library,
                                                        const std::string& function) {
  const auto found = library.functions().find(function);
  if (found == library.functions().end())
    return NotFound("Function ", function, " is not defined.");
  tensorflow::FunctionDef body;
  if (!body.ParseFromString(found->second->serialized))
    return Internal("Function '", function, "' cannot be parsed");
  std::vector<std::string> names;
  for (const auto& [key, value] : body.control_ret()) names.push_back(value);
  std::sort(names.begin(), names.end());
  return names;
}

absl::StatusOr<std::unique_ptr<Graph>> InstantiateFunction(const Graph& library,
                                                           const FunctionRef& function) {
  return Instantiation(library, function).Run();
}

}  // namespace muster
