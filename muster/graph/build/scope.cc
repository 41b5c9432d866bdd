#include "muster/graph/build/scope.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/strip.h"

#include "muster/base/status.h"
#include "muster/device/device_name.h"
#include "muster/graph/control_flow/control_flow.h"
#include "muster/graph/op_registry.h"

namespace muster {
namespace {

// The nodes of one WithControlDependencies and those made inside it: a node that reads one of the
// latter is ordered already and gets no edge of its own.
struct Controller {
  std::vector<Node*> nodes;
  absl::flat_hash_set<const Node*> made_inside;
};

using DeviceChoice = std::variant<std::string, DeviceFunction>;

}  // namespace

struct Scope::State {
  Graph* graph = nullptr;
  std::string prefix;
  std::vector<DeviceChoice> devices;  // outermost first
  std::vector<std::shared_ptr<Controller>> controllers;
  std::vector<Node*> colocated_with;  // outermost first
  std::string container;
  AttrMap attrs;
  ControlFlowContext* context = nullptr;
  std::shared_ptr<absl::Status> status = std::make_shared<absl::Status>();
};

Scope::Scope(Graph& graph) {
  auto state = std::make_shared<State>();
  state->graph = &graph;
  state_ = std::move(state);
}

std::shared_ptr<Scope::State> Scope::Copy() const {
  return std::make_shared<State>(*state_);
}
Graph& Scope::graph() const {
  return *state_->graph;
}
const std::string& Scope::prefix() const {
  return state_->prefix;
}
ControlFlowContext* Scope::control_flow_context() const {
  return state_->context;
}
const absl::Status& Scope::status() const {
  return *state_->status;
}
void Scope::UpdateStatus(absl::Status status) const {
  if (state_->status->ok()) *state_->status = std::move(status);
}

absl::StatusOr<Scope> Scope::TryNameScope(absl::string_view name) const {
  if (name.empty()) return WithPrefix("");
  if (absl::EndsWith(name, "/")) {
    return WithPrefix(name == "/" ? "" : std::string(name));
  }
  const bool good = state_->prefix.empty() ? IsValidNodeName(name) : IsValidScopeName(name);
  if (!good) return InvalidArgument("'", name, "' is not a valid scope name");
  return WithPrefix(
      absl::StrCat(state_->graph->UniqueName(absl::StrCat(state_->prefix, name)), "/"));
}

Scope Scope::NameScope(absl::string_view name) const {
  absl::StatusOr<Scope> scope = TryNameScope(name);
  if (scope.ok()) return *std::move(scope);
  UpdateStatus(scope.status());
  return *this;
}

Scope Scope::WithPrefix(std::string prefix) const {
  auto state = Copy();
  state->prefix = std::move(prefix);
  return Scope(std::move(state));
}

Scope Scope::WithDevice(absl::string_view device) const {
  auto state = Copy();
  state->devices.emplace_back(std::string(device));
  return Scope(std::move(state));
}

Scope Scope::WithDeviceFunction(DeviceFunction function) const {
  auto state = Copy();
  state->devices.emplace_back(std::move(function));
  return Scope(std::move(state));
}

Scope Scope::WithoutDevices() const {
  auto state = Copy();
  state->devices.clear();
  return Scope(std::move(state));
}

Scope Scope::WithControlDependencies(absl::Span<Node* const> nodes) const {
  auto state = Copy();
  auto controller = std::make_shared<Controller>();
  controller->nodes.assign(nodes.begin(), nodes.end());
  state->controllers.push_back(std::move(controller));
  return Scope(std::move(state));
}

Scope Scope::WithoutControlDependencies() const {
  auto state = Copy();
  state->controllers.clear();
  state->context = nullptr;
  return Scope(std::move(state));
}

Scope Scope::ColocatedWith(Node& node, bool ignore_existing) const {
  auto state = Copy();
  state->devices.clear();
  if (ignore_existing) state->colocated_with.clear();
  state->colocated_with.push_back(&node);
  return Scope(std::move(state));
}

Scope Scope::WithoutColocation() const {
  auto state = Copy();
  state->devices.clear();
  state->colocated_with.clear();
  return Scope(std::move(state));
}

Scope Scope::WithContainer(std::string container) const {
  auto state = Copy();
  state->container = std::move(container);
  return Scope(std::move(state));
}

Scope Scope::WithAttr(std::string name, AttrValue value) const {
  auto state = Copy();
  state->attrs.insert_or_assign(std::move(name), std::move(value));
  return Scope(std::move(state));
}

Scope Scope::WithControlFlowContext(ControlFlowContext* context) const {
  auto state = Copy();
  state->context = context;
  return Scope(std::move(state));
}

Scope Scope::WithFreshStatus() const {
  auto state = Copy();
  state->status = std::make_shared<absl::Status>();
  return Scope(std::move(state));
}

void Scope::NoteMade(Node& node) const {
  for (const auto& controller : state_->controllers) controller->made_inside.insert(&node);
}

std::vector<Node*> Scope::ControlInputsFor(absl::Span<const NodeInput> inputs) const {
  absl::flat_hash_set<const Node*> input_nodes;
  for (const NodeInput& input : inputs) {
    for (const Output& output : input.outputs()) input_nodes.insert(output.node);
  }
  std::vector<Node*> result;
  for (const auto& controller : state_->controllers) {
    const bool ordered = std::any_of(input_nodes.begin(), input_nodes.end(), [&](const Node* node) {
      return controller->made_inside.contains(node);
    });
    if (ordered) continue;
    for (Node* node : controller->nodes) {
      if (!input_nodes.contains(node) &&
          std::find(result.begin(), result.end(), node) == result.end()) {
        result.push_back(node);
      }
    }
  }
  return result;
}

namespace {

// Device strings and functions of the scope, innermost first; each fills in what the node's device
// leaves open so far.
absl::Status ApplyDevices(absl::Span<const DeviceChoice> devices, Node& node) {
  for (auto choice = devices.rbegin(); choice != devices.rend(); ++choice) {
    if (const auto* function = std::get_if<DeviceFunction>(&*choice)) {
      // A function has seen the device so far: what it says stands as it is.
      ASSIGN_OR_RETURN(std::string whole, (*function)(node));
      RETURN_IF_ERROR(DeviceName::Parse(whole).status());
      node.set_device(std::move(whole));
      continue;
    }
    const std::string& text = std::get<std::string>(*choice);
    if (text.empty()) continue;
    ASSIGN_OR_RETURN(DeviceName outer, DeviceName::Parse(text));
    ASSIGN_OR_RETURN(DeviceName inner, DeviceName::Parse(node.device()));
    node.set_device(outer.Override(inner).ToString());
  }
  return absl::OkStatus();
}

// _class: the groups of every node this one is colocated with, sorted; their device comes along.
void ApplyColocation(absl::Span<Node* const> colocated_with, Node& node) {
  if (colocated_with.empty()) return;
  std::vector<std::string> groups;
  for (auto at = colocated_with.rbegin(); at != colocated_with.rend(); ++at) {
    const std::vector<std::string> theirs = (*at)->ColocationGroups();
    if (theirs.empty()) groups.push_back(absl::StrCat("loc:@", (*at)->name()));
    for (const std::string& name : theirs) groups.push_back(absl::StrCat("loc:@", name));
    if (!(*at)->device().empty()) node.set_device((*at)->device());
  }
  std::sort(groups.begin(), groups.end());
  groups.erase(std::unique(groups.begin(), groups.end()), groups.end());
  node.SetAttr("_class", AttrValue(std::move(groups)));
}

}  // namespace

absl::StatusOr<Node*> Scope::TryAdd(absl::string_view op, std::vector<NodeInput> inputs,
                                    AttrMap attrs, absl::string_view name) const {
  Scope at = *this;
  if (const OpRegistration* registration = OpRegistry::Global().Find(op)) {
    const std::vector<ArgDef>& args = registration->def.inputs;
    for (size_t i = 0; i < std::min(args.size(), inputs.size()); ++i) {
      if (!args[i].is_ref || inputs[i].outputs().empty()) continue;
      if (Node* node = inputs[i].outputs()[0].node) at = at.ColocatedWith(*node);
    }
  }
  return at.AddHere(op, std::move(inputs), std::move(attrs), name);
}

absl::StatusOr<Node*> Scope::AddHere(absl::string_view op, std::vector<NodeInput> inputs,
                                     AttrMap attrs, absl::string_view name) const {
  NodeSpec spec;
  spec.op = std::string(op);
  if (name.empty()) name = op;
  if (absl::ConsumeSuffix(&name, "/")) {
    spec.name = std::string(name);
  } else {
    const bool good = state_->prefix.empty() ? IsValidNodeName(name, absl::StartsWith(op, "_"))
                                             : IsValidScopeName(name);
    if (!good) return InvalidArgument("'", name, "' is not a valid node name");
    spec.name = state_->graph->UniqueName(absl::StrCat(state_->prefix, name));
  }
  spec.control_inputs = ControlInputsFor(inputs);
  spec.attrs = std::move(attrs);
  for (const auto& [key, value] : state_->attrs) spec.attrs.try_emplace(key, value);
  if (!state_->container.empty()) {
    const auto given = spec.attrs.find("container");
    const OpRegistration* registration = OpRegistry::Global().Find(op);
    const bool takes_container = registration != nullptr && registration->def.is_stateful &&
                                 registration->def.FindAttr("container") != nullptr;
    if (takes_container && (given == spec.attrs.end() || given->second == AttrValue(""))) {
      spec.attrs.insert_or_assign("container", AttrValue(state_->container));
    }
  }
  spec.inputs = std::move(inputs);
  ASSIGN_OR_RETURN(Node * node, state_->graph->AddNode(std::move(spec)));
  NoteMade(*node);
  node->set_control_flow_context(state_->context);
  RETURN_IF_ERROR(EnterControlFlowContext(*node, *this));
  RETURN_IF_ERROR(ApplyDevices(state_->devices, *node));
  ApplyColocation(state_->colocated_with, *node);
  return node;
}

Node* Scope::Add(absl::string_view op, std::vector<NodeInput> inputs, AttrMap attrs,
                 absl::string_view name) const {
  if (!status().ok()) return nullptr;
  absl::StatusOr<Node*> node = TryAdd(op, std::move(inputs), std::move(attrs), name);
  if (node.ok()) return *node;
  UpdateStatus(node.status());
  return nullptr;
}

Output Scope::Op(absl::string_view op, std::vector<NodeInput> inputs, AttrMap attrs,
                 absl::string_view name) const {
  Node* node = Add(op, std::move(inputs), std::move(attrs), name);
  return node == nullptr ? Output() : Output(node, 0);
}

Output Scope::Const(Tensor value, absl::string_view name) const {
  const DType dtype = value.dtype();
  return Op("Const", {}, {{"value", std::move(value)}, {"dtype", dtype}}, name);
}

}  // namespace muster
