// Puts the body of a function where it is called, under the names that TensorFlow's masters give.
#include <algorithm>

#include "absl/strings/strip.h"

#include "muster/base/status.h"
#include "muster/device/device_name.h"
#include "muster/graph/control_flow/frames.h"
#include "muster/graph/gradients/function_gradient.h"
#include "muster/graph/op_registry.h"
#include "muster/graph/proto/function_proto.h"
#include "muster/graph/rewrite/lowering.h"

namespace muster {
namespace {

// The device of a node of a function that is called on `caller`.
std::string DeviceInside(const std::string& caller, const std::string& inner) {
  if (inner.empty() || caller.empty()) return inner.empty() ? caller : inner;
  const absl::StatusOr<DeviceName> outer_name = DeviceName::Parse(caller);
  const absl::StatusOr<DeviceName> inner_name = DeviceName::Parse(inner);
  if (!outer_name.ok() || !inner_name.ok()) return inner;
  return outer_name->Override(*inner_name).ToString();
}

// The name under which a function is in a CallChain.
std::string ChainName(const FunctionRef& function) {
  if (function.name != kSymbolicGradient) return function.name;
  const auto f = function.attrs.find("f");
  const auto* const of =
      f == function.attrs.end() ? nullptr : f->second.get<std::shared_ptr<const FunctionRef>>();
  return absl::StrCat(kSymbolicGradient, ":", of == nullptr ? "" : (*of)->name);
}

// Names in attributes are those inside the function.
void RenameReferences(const Node& caller, const Graph& body,
                      const absl::flat_hash_map<const Node*, Node*>& copies, Node& copy) {
  if (copy.op() == "Enter" || copy.op() == "RefEnter") {
    const absl::StatusOr<std::string> frame = copy.Attr<std::string>("frame_name");
    if (frame.ok()) copy.SetAttr("frame_name", absl::StrCat(caller.name(), "/", *frame));
  }
  const auto found = copy.attrs().find("_class");
  if (found == copy.attrs().end()) return;
  const auto* const groups = found->second.get<std::vector<std::string>>();
  if (groups == nullptr) return;
  std::vector<std::string> renamed;
  for (absl::string_view group : *groups) {
    if (!absl::ConsumePrefix(&group, kColocation)) continue;
    const Node* const inner = body.FindNode(group);
    const auto other = copies.find(inner);
    if (inner != nullptr && other != copies.end())
      renamed.push_back(absl::StrCat(kColocation, other->second->name()));
  }
  copy.ClearAttr("_class");
  if (!renamed.empty()) copy.SetAttr("_class", std::move(renamed));
}

}  // namespace

absl::Status Lowering::LowerDirectCall(Node& node) {
  FunctionRef function{node.op(), {}};
  for (const AttrDef& attr : node.def().attrs) {
    if (const AttrValue* value = node.FindAttr(attr.name))
      function.attrs.emplace(attr.name, *value);
  }
  if (branch_calls_.contains(&node)) return Inline(node, function, Effects::kControlResults);
  if (MayInline(function)) return Inline(node, function, Effects::kAllStatefulBeforeResults);
  NodeSpec spec;
  spec.name = NewName(node.name());
  spec.op = node.def().is_stateful ? "StatefulPartitionedCall" : "PartitionedCall";
  spec.attrs = {{"Tin", node.input_types()}, {"Tout", node.output_types()}, {"f", function}};
  spec.flat_inputs = node.inputs();
  spec.control_inputs = node.control_inputs();
  spec.device = node.device();
  ASSIGN_OR_RETURN(Node* const call, Add(std::move(spec)));
  std::vector<Output> outputs;
  for (int i = 0; i < call->num_outputs(); ++i) outputs.emplace_back(call, i);
  return Replace(node, std::move(outputs), *call);
}

absl::Status Lowering::LowerCall(Node& node) {
  ASSIGN_OR_RETURN(const FunctionRef function, node.Attr<FunctionRef>("f"));
  // An executor that does not exist is the call's error to report.
  if (!MayInline(function) || !node.Attr<std::string>("executor_type").value_or("").empty())
    return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ControlResults(library_, function.name));
  // A function made without saying what must run has all its effects when it is called.
  const bool says_nothing = names.empty() && node.op() == "StatefulPartitionedCall";
  return Inline(node, function, says_nothing ? Effects::kAllStateful : Effects::kControlResults);
}

absl::Status Lowering::LowerGradient(Node& node) {
  ASSIGN_OR_RETURN(const FunctionRef function, node.Attr<FunctionRef>("f"));
  const FunctionRef gradient{kSymbolicGradient, {{"f", function}}};
  if (IsRecursive(ChainName(gradient))) return absl::OkStatus();
  const absl::StatusOr<const Graph*> body = Body(gradient);
  if (!body.ok()) return absl::OkStatus();
  std::vector<DType> arguments;
  std::vector<DType> results;
  for (const auto& inner : (*body)->nodes()) {
    if (inner->op() == "_Arg") arguments.push_back(inner->output_types()[0]);
    if (inner->op() == "_Retval") results.push_back(inner->input_types()[0]);
  }
  if (arguments != node.input_types() || results != node.output_types()) return absl::OkStatus();
  return Inline(node, gradient, Effects::kAllStateful);
}

bool Lowering::MayInline(const FunctionRef& function) const {
  const auto found = library_.functions().find(function.name);
  // The call reports a missing function when it runs.
  if (found == library_.functions().end()) return false;
  return !HasTrueAttr(found->second->attrs, "_noinline") && !IsRecursive(function.name);
}

bool Lowering::IsRecursive(const std::string& function) const {
  for (const CallChain* at = chain_.get(); at != nullptr; at = at->outer.get()) {
    if (at->function == function) return true;
  }
  return false;
}

absl::StatusOr<const Graph*> Lowering::Body(const FunctionRef& function) {
  std::string key = function.name;
  for (const auto& [name, value] : function.attrs)
    absl::StrAppend(&key, ";", name, "=", value.ToString());
  std::unique_ptr<Graph>& body = bodies_[key];
  if (body == nullptr) {
    ASSIGN_OR_RETURN(body, InstantiateCallee(library_, function));
  }
  return body.get();
}

absl::Status Lowering::Inline(Node& node, const FunctionRef& function, Effects effects) {
  ASSIGN_OR_RETURN(const Graph* const body, Body(function));
  chain_ = std::make_shared<CallChain>(CallChain{ChainName(function), chain_});
  const std::string prefix = absl::StrCat("Func/", node.name());
  const auto is_border = [](const Node& inner) {
    return inner.op() == "_Arg" || inner.op() == "_Retval";
  };
  const bool has_roots =
      std::any_of(body->nodes().begin(), body->nodes().end(), [&](const auto& inner) {
        return !is_border(*inner) && inner->num_inputs() == 0 && inner->control_inputs().empty();
      });
  const bool waits = !node.control_inputs().empty();
  Node* start = nullptr;
  const auto make_start = [&](std::vector<Node*> control) -> absl::Status {
    NodeSpec spec;
    spec.name = NewName(absl::StrCat(prefix, "/input_control_node"));
    spec.op = "NoOp";
    spec.control_inputs = std::move(control);
    spec.device = node.device();
    ASSIGN_OR_RETURN(start, Add(std::move(spec)));
    return absl::OkStatus();
  };
  if (waits) RETURN_IF_ERROR(make_start(node.control_inputs()));
  std::vector<Node*> arguments;
  for (const Output& input : node.inputs()) {
    NodeSpec spec;
    spec.name = NewName(absl::StrCat(prefix, "/input"));
    spec.op = "Identity";
    spec.inputs = {input};
    spec.attrs.emplace("_class", ColocateWith(*input.node));
    if (start != nullptr) spec.control_inputs = {start};
    ASSIGN_OR_RETURN(Node* const argument, Add(std::move(spec)));
    arguments.push_back(argument);
  }
  // Nodes without inputs must run where the call does: in its loop, in its branch.
  if (start == nullptr && has_roots && !arguments.empty()) RETURN_IF_ERROR(make_start(arguments));
  absl::flat_hash_map<const Node*, Node*> copies;
  std::vector<Output> results(node.num_outputs());
  RETURN_IF_ERROR(CopyBody(node, *body, arguments, start, copies, results));

  std::vector<Node*> effect_nodes;
  if (effects == Effects::kControlResults) {
    ASSIGN_OR_RETURN(const std::vector<std::string> names, ControlResults(library_, function.name));
    for (const std::string& name : names) {
      const Node* const inner = body->FindNode(name);
      if (inner != nullptr && !is_border(*inner)) effect_nodes.push_back(copies[inner]);
    }
  } else {
    ASSIGN_OR_RETURN(Node* const all, AfterEffects(node, *body, copies));
    if (all != nullptr) effect_nodes.push_back(all);
  }
  std::vector<Node*> before_results;
  if (effects == Effects::kAllStatefulBeforeResults) before_results = effect_nodes;
  // Dead where the call is.
  if (start != nullptr) {
    effect_nodes.push_back(start);
  } else if (effects != Effects::kControlResults) {
    effect_nodes.insert(effect_nodes.end(), arguments.begin(), arguments.end());
  }
  std::vector<Output> outputs;
  for (size_t i = 0; i < results.size(); ++i) {
    if (!results[i]) return InvalidArgument("Function ", function.name, " has no result ", i);
    NodeSpec spec;
    spec.name = NewName(absl::StrCat(prefix, "/output"));
    spec.op = "Identity";
    spec.inputs = {results[i]};
    spec.control_inputs = before_results;
    ASSIGN_OR_RETURN(Node* const output, Add(std::move(spec)));
    if (effects != Effects::kControlResults) effect_nodes.push_back(output);
    outputs.emplace_back(output, 0);
  }
  NodeSpec spec;
  spec.name = NewName(absl::StrCat(prefix, "/output_control_node"));
  spec.op = "NoOp";
  spec.control_inputs = std::move(effect_nodes);
  spec.device = node.device();
  ASSIGN_OR_RETURN(Node* const executed, Add(std::move(spec)));
  return Replace(node, std::move(outputs), *executed);
}

absl::StatusOr<Node*> Lowering::AfterEffects(
    const Node& caller, const Graph& body, const absl::flat_hash_map<const Node*, Node*>& copies) {
  const Frames frames = FindFrames(body);
  const auto outermost = [&](int frame) {
    while (frame > 0 && frames.frames[frame].parent > 0) frame = frames.frames[frame].parent;
    return frame;
  };
  std::vector<Node*> waited;
  absl::flat_hash_set<int> loops;
  for (const auto& inner : body.nodes()) {
    if (!inner->def().is_stateful || inner->op() == "_Arg" || inner->op() == "_Retval") continue;
    const int frame = outermost(frames.inside[inner->id()]);
    if (frame == 0) {
      waited.push_back(copies.at(inner.get()));
    } else {
      loops.insert(frame);
    }
  }
  for (const auto& inner : body.nodes()) {
    if (frames.outputs[inner->id()] == 0 && loops.contains(frames.inside[inner->id()]))
      waited.push_back(copies.at(inner.get()));
  }
  if (waited.empty()) return nullptr;
  NodeSpec spec;
  spec.name = NewName(absl::StrCat("Func/", caller.name(), "/effects"));
  --next_number_;  // TensorFlow has no such node
  spec.op = "ControlTrigger";
  spec.control_inputs = std::move(waited);
  spec.device = caller.device();
  return Add(std::move(spec));
}

absl::Status Lowering::CopyBody(const Node& caller, const Graph& body,
                                const std::vector<Node*>& arguments, Node* start,
                                absl::flat_hash_map<const Node*, Node*>& copies,
                                std::vector<Output>& results) {
  std::vector<const Node*> inner_nodes;
  size_t taken = 0;
  for (const auto& inner : body.nodes()) {
    if (inner->op() == "_Arg") {
      ASSIGN_OR_RETURN(const int64_t index, inner->Attr<int64_t>("index"));
      if (index < 0 || index >= static_cast<int64_t>(arguments.size()) ||
          arguments[index]->output_types()[0] != inner->output_types()[0]) {
        return InvalidArgument("Call '", caller.name(), "' has no fitting argument ", index);
      }
      ++taken;
      copies[inner.get()] = arguments[index];
      // The shape that is known inside of the function holds for its argument.
      if (!arguments[index]->output_shape(0).known_rank())
        arguments[index]->set_output_shape(0, inner->output_shape(0));
    } else if (inner->op() != "_Retval") {
      inner_nodes.push_back(inner.get());
    }
  }
  if (taken != arguments.size()) {
    return InvalidArgument("Call '", caller.name(), "' has ", arguments.size(),
                           " arguments where the function takes ", taken);
  }
  for (const Node* inner : inner_nodes) {
    std::vector<Output> inputs;
    for (const Output& input : inner->inputs()) {
      const auto copy = copies.find(input.node);
      inputs.push_back(copy == copies.end() ? Output() : Output(copy->second, input.index));
    }
    std::string name = absl::StrCat(caller.name(), "/", inner->name());
    if (result_->FindNode(name) != nullptr) name = NewName(name);
    Node* const copy = result_->AddCopy(*inner, std::move(name), std::move(inputs), {});
    copy->set_device(DeviceInside(caller.device(), inner->device()));
    copies[inner] = copy;
    chains_[copy] = chain_;
  }
  for (const Node* inner : inner_nodes) {
    Node& copy = *copies[inner];
    for (int i = 0; i < inner->num_inputs(); ++i) {
      if (copy.input(i)) continue;
      const Output& input = inner->input(i);
      RETURN_IF_ERROR(result_->UpdateInput(copy, i, Output(copies[input.node], input.index)));
    }
    for (const Node* before : inner->control_inputs()) Wait(copy, *copies[before]);
    if (inner->num_inputs() == 0 && inner->control_inputs().empty() && start != nullptr)
      Wait(copy, *start);
    RenameReferences(caller, body, copies, copy);
  }
  for (const auto& inner : body.nodes()) {
    if (inner->op() != "_Retval") continue;
    ASSIGN_OR_RETURN(const int64_t index, inner->Attr<int64_t>("index"));
    if (index < 0 || index >= static_cast<int64_t>(results.size()))
      return InvalidArgument("Call '", caller.name(), "' takes no result ", index);
    const Output& input = inner->input(0);
    if (input.base_dtype() != BaseType(caller.output_types()[index])) {
      return InvalidArgument("Output ", index, " of type ", DTypeName(input.base_dtype()),
                             " does not match declared output type ",
                             DTypeName(caller.output_types()[index]), " for node {{node ",
                             caller.name(), "}}");
    }
    results[index] = Output(copies[input.node], input.index);
  }
  return absl::OkStatus();
}

}  // namespace muster
