#include "muster/graph/proto/function_build_proto.h"

#include <algorithm>
#include <optional>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "tensorflow/core/framework/function.pb.h"
#include "tensorflow/core/framework/graph.pb.h"

#include "muster/base/status.h"
#include "muster/graph/proto/function_proto.h"
#include "muster/graph/proto/graph_proto.h"

namespace muster {
namespace {

bool OnlyVariants(const Node& node) {
  return node.num_outputs() > 0 &&
         std::all_of(node.output_types().begin(), node.output_types().end(),
                     [](DType t) { return t == DType::kVariant; });
}

bool OnlyHandles(const Node& node) {
  return node.num_outputs() > 0 &&
         std::all_of(node.output_types().begin(), node.output_types().end(),
                     [](DType t) { return t == DType::kResource; });
}

bool HasEffect(const Node& node) {
  if (!node.def().is_stateful || OnlyVariants(node) || OnlyHandles(node)) return false;
  if (node.def().FindAttr("seed") != nullptr) return false;  // random numbers
  return node.control_flow_context() == nullptr && !absl::StartsWith(node.op(), "Placeholder");
}

// Argument names are lower case, as TensorFlow makes them from node names.
class ArgumentNames {
 public:
  std::string Unique(absl::string_view node_name) {
    std::string base;
    for (char c : node_name)
      base += absl::ascii_isalnum(static_cast<unsigned char>(c))
                  ? absl::ascii_tolower(static_cast<unsigned char>(c))
                  : '_';
    // The first letter of a name is a letter.
    size_t first = 0;
    while (first < base.size() && !absl::ascii_isalpha(static_cast<unsigned char>(base[first])))
      ++first;
    base = first == base.size() ? "unknown" : base.substr(first);
    std::string name = base;
    for (int i = 0; !used_.insert(name).second; ++i) name = absl::StrCat(base, "_", i);
    return name;
  }
  void Reserve(const std::string& name) { used_.insert(name); }

 private:
  absl::flat_hash_set<std::string> used_;
};

class Definition {
 public:
  Definition(const Graph& body, const FunctionSpec& spec) : body_(body), spec_(spec) {}

  absl::StatusOr<tensorflow::FunctionDef> Run() {
    for (const Output& argument : spec_.arguments) arguments_.insert(argument.node);
    for (const auto& node : body_.nodes()) {
      // A node and an argument of the same name could not be told apart.
      if (!arguments_.contains(node.get())) names_.Reserve(node->name());
    }
    for (const Output& argument : spec_.arguments) {
      if (argument.node->num_inputs() > 0)
        return InvalidArgument("Argument ", argument.name(), " of function '", spec_.name,
                               "' has inputs");
      std::string name = names_.Unique(argument.node->name());
      tensorflow::OpDef::ArgDef& arg = *def_.mutable_signature()->add_input_arg();
      arg.set_name(name);
      arg.set_type(static_cast<tensorflow::DataType>(argument.base_dtype()));
      if (!argument_names_.emplace(argument, std::move(name)).second)
        return InvalidArgument("Argument ", argument.name(), " of function '", spec_.name,
                               "' occurs twice");
    }
    for (const auto& node : body_.nodes()) {
      if (!arguments_.contains(node.get())) RETURN_IF_ERROR(AddNode(*node));
    }
    ArgumentNames results;
    for (const Output& result : spec_.results) {
      tensorflow::OpDef::ArgDef& arg = *def_.mutable_signature()->add_output_arg();
      arg.set_name(results.Unique(result.node->name()));
      arg.set_type(static_cast<tensorflow::DataType>(result.base_dtype()));
      ASSIGN_OR_RETURN((*def_.mutable_ret())[arg.name()], InputText(result));
    }
    return std::move(def_);
  }

 private:
  absl::StatusOr<std::string> InputText(const Output& source) const {
    if (const auto argument = argument_names_.find(source); argument != argument_names_.end())
      return argument->second;
    if (source.node == nullptr || &source.node->graph() != &body_)
      return InvalidArgument("Function '", spec_.name, "' reads a tensor of another graph");
    const OpDef& op = source.node->def();
    for (const ArgDef& output : op.outputs) {
      const ArgRange range = source.node->OutputRange(output.name);
      if (source.index >= range.begin && source.index < range.end)
        return absl::StrCat(source.node->name(), ":", output.name, ":", source.index - range.begin);
    }
    return Internal("Node '", source.node->name(), "' has no output ", source.index);
  }

  absl::Status AddNode(const Node& node) {
    tensorflow::NodeDef& proto = *def_.add_node_def();
    RETURN_IF_ERROR(NodeToProto(node, {}, proto));
    std::vector<std::string> controls;
    for (const std::string& input : proto.input()) {
      if (!absl::StartsWith(input, "^")) continue;
      const Node* before = body_.FindNode(absl::string_view(input).substr(1));
      if (!arguments_.contains(before)) controls.push_back(input);
    }
    proto.clear_input();
    for (const Output& input : node.inputs()) {
      ASSIGN_OR_RETURN(*proto.add_input(), InputText(input));
    }
    for (std::string& control : controls) proto.add_input(std::move(control));
    if (node.def().is_stateful) def_.mutable_signature()->set_is_stateful(true);
    return absl::OkStatus();
  }

  const Graph& body_;
  const FunctionSpec& spec_;
  ArgumentNames names_;
  absl::flat_hash_set<const Node*> arguments_;
  absl::flat_hash_map<Output, std::string> argument_names_;
  tensorflow::FunctionDef def_;
};

// FNV-1a, the same on every machine.
std::string Digest(const tensorflow::FunctionDef& def) {
  uint64_t hash = 0xcbf29ce484222325u;
  const auto add = [&](absl::string_view text) {
    for (char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  };
  // Nodes one by one: the order of a map's entries in a message is not fixed.
  for (const tensorflow::NodeDef& node : def.node_def()) {
    add(node.name());
    add(node.op());
    for (const std::string& input : node.input()) add(input);
    std::vector<std::string> attrs;
    for (const auto& [name, value] : node.attr())
      attrs.push_back(absl::StrCat(name, "=", value.SerializeAsString()));
    std::sort(attrs.begin(), attrs.end());
    for (const std::string& attr : attrs) add(attr);
  }
  return absl::StrFormat("%016x", hash);
}

}  // namespace

absl::StatusOr<std::vector<Output>> ReturnAfterEffects(Graph& body,
                                                       const std::vector<Output>& results) {
  std::vector<Node*> effects;
  absl::flat_hash_map<Output, Node*> last_on;
  Node* last_elsewhere = nullptr;
  const int count = body.num_nodes();
  for (int i = 0; i < count; ++i) {
    Node& node = *body.nodes()[static_cast<size_t>(i)];
    if (!HasEffect(node)) continue;
    effects.push_back(&node);
    bool on_resource = false;
    for (const Output& input : node.inputs()) {
      if (input.dtype() != DType::kResource) continue;
      on_resource = true;
      Node*& last = last_on[input];
      if (last != nullptr && last != &node) body.AddControlInput(node, *last);
      last = &node;
    }
    if (on_resource) continue;
    if (last_elsewhere != nullptr) body.AddControlInput(node, *last_elsewhere);
    last_elsewhere = &node;
  }
  std::vector<Output> returned;
  for (const Output& result : results) {
    NodeSpec spec;
    spec.name = body.UniqueName("Identity");
    spec.op = "Identity";
    spec.inputs = {NodeInput(result)};
    spec.control_inputs = effects;
    ASSIGN_OR_RETURN(Node * node, body.AddNode(std::move(spec)));
    returned.emplace_back(node, 0);
  }
  return returned;
}

absl::StatusOr<std::string> DefineFunction(const Graph& body, const FunctionSpec& spec,
                                           Graph& into) {
  tensorflow::FunctionDefLibrary library;
  ASSIGN_OR_RETURN(*library.add_function(), Definition(body, spec).Run());
  std::string name = spec.name;
  if (spec.append_digest) absl::StrAppend(&name, "_", Digest(library.function(0)));
  library.mutable_function(0)->mutable_signature()->set_name(name);
  CopyFunctions(body, into);
  RETURN_IF_ERROR(ImportFunctions(into, library).status());
  return name;
}

absl::StatusOr<Output> ByValueCapture::Capture(Output outer) {
  std::vector<const Node*> stack = {outer.node};
  while (!stack.empty()) {
    const Node* node = stack.back();
    if (copies_.contains(node)) {
      stack.pop_back();
      continue;
    }
    if (absl::StartsWith(node->op(), "Placeholder"))
      return InvalidArgument("Cannot capture a placeholder (name:", node->name(),
                             ", type:", node->op(), ") by value.");
    if (node->def().is_stateful && !OnlyVariants(*node))
      return InvalidArgument("Cannot capture a stateful node (name:", node->name(),
                             ", type:", node->op(), ") by value.");
    std::vector<Output> inputs;
    bool ready = true;
    for (const Output& input : node->inputs()) {
      const auto copy = copies_.find(input.node);
      if (copy != copies_.end()) {
        inputs.emplace_back(copy->second, input.index);
      } else {
        if (ready) stack.push_back(input.node);
        ready = false;
      }
    }
    if (!ready) {
      // An input that is being copied further down the stack closes a loop.
      if (std::count(stack.begin(), stack.end(), stack.back()) > 1)
        return InvalidArgument("Cannot capture a loop (name:", node->name(), ", type:", node->op(),
                               ") by value.");
      continue;
    }
    copies_[node] = body_.AddCopy(*node, body_.UniqueName(node->name()), std::move(inputs), {});
    stack.pop_back();
  }
  CopyFunctions(outer.node->graph(), body_);
  return Output(copies_.at(outer.node), outer.index);
}

}  // namespace muster
