#include "muster/graph/graph.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "absl/strings/ascii.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

#include "muster/base/check.h"
#include "muster/base/status.h"
#include "muster/graph/control_flow/control_flow.h"
#include "muster/graph/infer.h"
#include "muster/graph/op_registry.h"

namespace muster {

DType Output::dtype() const {
  return node->output_types()[index];
}
const PartialShape& Output::shape() const {
  static const auto* unknown = new PartialShape();
  return node == nullptr ? *unknown : node->output_shape(index);
}
std::string Output::name() const {
  return absl::StrCat(node->name(), ":", index);
}

const std::string& Node::op() const {
  return registration_->def.name;
}
const OpDef& Node::def() const {
  return registration_->def;
}

const AttrValue* Node::FindAttr(absl::string_view name) const {
  const auto found = attrs_.find(name);
  if (found != attrs_.end()) return &found->second;
  const AttrDef* attr = def().FindAttr(name);
  return attr != nullptr && attr->default_value ? &*attr->default_value : nullptr;
}

namespace {

absl::StatusOr<int32_t> Narrowed(absl::string_view name, int64_t value) {
  if (value >= std::numeric_limits<int32_t>::min() && value <= std::numeric_limits<int32_t>::max())
    return static_cast<int32_t>(value);
  return InvalidArgument("Attr ", name, " has value ", value, " out of range for an int32");
}

}  // namespace

template <typename T>
absl::StatusOr<T> Node::Attr(absl::string_view name) const {
  // Attributes are kept as int64; ops may ask for them as int32, as TensorFlow's do.
  if constexpr (std::is_same_v<T, int32_t>) {
    ASSIGN_OR_RETURN(const int64_t value, Attr<int64_t>(name));
    return Narrowed(name, value);
  } else if constexpr (std::is_same_v<T, std::vector<int32_t>>) {
    ASSIGN_OR_RETURN(const std::vector<int64_t> values, Attr<std::vector<int64_t>>(name));
    std::vector<int32_t> narrowed;
    for (const int64_t value : values) {
      ASSIGN_OR_RETURN(const int32_t one, Narrowed(name, value));
      narrowed.push_back(one);
    }
    return narrowed;
  } else {
    if (attrs_.find(name) != attrs_.end()) return GetAttr<T>(attrs_, name);
    if (const AttrValue* value = FindAttr(name))
      return GetAttr<T>({{std::string(name), *value}}, name);
    return NotFound("No attr named '", name, "' in node '", name_, "' (op ", op(), ")");
  }
}
template absl::StatusOr<std::string> Node::Attr(absl::string_view) const;
template absl::StatusOr<int64_t> Node::Attr(absl::string_view) const;
template absl::StatusOr<int32_t> Node::Attr(absl::string_view) const;
template absl::StatusOr<float> Node::Attr(absl::string_view) const;
template absl::StatusOr<bool> Node::Attr(absl::string_view) const;
template absl::StatusOr<DType> Node::Attr(absl::string_view) const;
template absl::StatusOr<PartialShape> Node::Attr(absl::string_view) const;
template absl::StatusOr<Tensor> Node::Attr(absl::string_view) const;
template absl::StatusOr<FunctionRef> Node::Attr(absl::string_view) const;
template absl::StatusOr<std::vector<std::string>> Node::Attr(absl::string_view) const;
template absl::StatusOr<std::vector<int64_t>> Node::Attr(absl::string_view) const;
template absl::StatusOr<std::vector<int32_t>> Node::Attr(absl::string_view) const;
template absl::StatusOr<std::vector<float>> Node::Attr(absl::string_view) const;
template absl::StatusOr<std::vector<bool>> Node::Attr(absl::string_view) const;
template absl::StatusOr<std::vector<DType>> Node::Attr(absl::string_view) const;
template absl::StatusOr<std::vector<PartialShape>> Node::Attr(absl::string_view) const;
template absl::StatusOr<std::vector<Tensor>> Node::Attr(absl::string_view) const;
template absl::StatusOr<std::vector<FunctionRef>> Node::Attr(absl::string_view) const;

void Node::ClearAttr(absl::string_view name) {
  const auto found = attrs_.find(name);
  if (found != attrs_.end()) attrs_.erase(found);
}

namespace {

ArgRange RangeOf(const std::vector<ArgDef>& args, int index, const AttrMap& attrs) {
  CHECK(index >= 0);
  const auto ranges = ArgRanges(args, attrs);
  CHECK(ranges.ok());
  return (*ranges)[index];
}

// The attributes with the defaults of those that only newer TensorFlow knows, which nodes do not
// carry; empty when there are none.
AttrMap WithAllDefaults(const OpDef& op, const AttrMap& attrs) {
  AttrMap completed;
  for (const AttrDef& attr : op.attrs) {
    if (!attr.since_2x || !attr.default_value || attrs.find(attr.name) != attrs.end()) continue;
    if (completed.empty()) completed = attrs;
    completed.emplace(attr.name, *attr.default_value);
  }
  return completed;
}

}  // namespace

ArgRange Node::InputRange(absl::string_view arg) const {
  return RangeOf(def().inputs, def().FindInput(arg), attrs_);
}
ArgRange Node::OutputRange(absl::string_view arg) const {
  return RangeOf(def().outputs, def().FindOutput(arg), attrs_);
}

std::vector<std::string> Node::ColocationGroups() const {
  std::vector<std::string> names;
  const auto found = attrs_.find("_class");
  if (found == attrs_.end()) return names;
  if (const auto* list = found->second.get<std::vector<std::string>>()) {
    for (absl::string_view entry : *list) {
      if (absl::ConsumePrefix(&entry, "loc:@")) names.emplace_back(entry);
    }
  }
  return names;
}

Graph::Graph() = default;
Graph::~Graph() = default;

absl::StatusOr<Node*> Graph::AddNode(NodeSpec spec) {
  if (!IsValidNodeName(spec.name, /*allow_internal=*/true)) {
    return InvalidArgument("'", spec.name, "' is not a valid node name");
  }
  if (by_name_.contains(spec.name))
    return InvalidArgument("Duplicate node name in graph: '", spec.name, "'");
  const auto function = functions_.find(spec.op);
  const OpRegistration* registration =
      function == functions_.end() ? nullptr : function->second->registration.get();
  if (registration == nullptr) {
    ASSIGN_OR_RETURN(registration, OpRegistry::Global().Lookup(spec.op));
  }

  auto node = std::make_unique<Node>();
  node->name_ = std::move(spec.name);
  node->registration_ = registration;
  node->graph_ = this;
  node->attrs_ = std::move(spec.attrs);
  node->device_ = std::move(spec.device);
  if (spec.flat_inputs) {
    RETURN_IF_ERROR(CompleteAttrs(registration->def, node->name_, node->attrs_));
    node->inputs_ = *std::move(spec.flat_inputs);
  } else {
    RETURN_IF_ERROR(ResolveAttrs(registration->def, spec.inputs, node->name_, node->attrs_));
  }
  const AttrMap completed = WithAllDefaults(registration->def, node->attrs_);
  const AttrMap& typing = completed.empty() ? node->attrs_ : completed;
  ASSIGN_OR_RETURN(node->input_types_, ArgTypes(registration->def.inputs, typing));
  ASSIGN_OR_RETURN(node->output_types_, ArgTypes(registration->def.outputs, typing));
  for (const NodeInput& input : spec.inputs) {
    node->inputs_.insert(node->inputs_.end(), input.outputs().begin(), input.outputs().end());
  }
  RETURN_IF_ERROR(CheckInputs(*node));
  for (Node* before : spec.control_inputs) {
    if (std::find(node->control_inputs_.begin(), node->control_inputs_.end(), before) ==
        node->control_inputs_.end()) {
      node->control_inputs_.push_back(before);
    }
  }
  node->output_shapes_.resize(node->output_types_.size());
  node->output_handles_.resize(node->output_types_.size());
  RETURN_IF_ERROR(InferShapes(*node));

  node->id_ = static_cast<int>(nodes_.size());
  for (int i = 0; i < node->num_inputs(); ++i) {
    const Output& input = node->inputs_[i];
    if (input) input.node->consumers_.push_back({node.get(), i, input.index});
  }
  by_name_.emplace(node->name_, node.get());
  // A name that was used as it stands is taken for later unique names too.
  names_in_use_.try_emplace(absl::AsciiStrToLower(node->name_), 1);
  nodes_.push_back(std::move(node));
  return nodes_.back().get();
}

Node* Graph::AddCopy(const Node& original, std::string name, std::vector<Output> inputs,
                     std::vector<Node*> control_inputs) {
  CHECK(static_cast<int>(inputs.size()) == original.num_inputs() && !by_name_.contains(name));
  auto node = std::make_unique<Node>();
  node->id_ = static_cast<int>(nodes_.size());
  node->name_ = std::move(name);
  node->registration_ = original.registration_;
  node->graph_ = this;
  node->attrs_ = original.attrs_;
  node->inputs_ = std::move(inputs);
  node->control_inputs_ = std::move(control_inputs);
  node->input_types_ = original.input_types_;
  node->output_types_ = original.output_types_;
  node->output_shapes_ = original.output_shapes_;
  node->output_handles_ = original.output_handles_;
  node->device_ = original.device_;
  for (int i = 0; i < node->num_inputs(); ++i) {
    const Output& input = node->inputs_[i];
    if (input.node != nullptr) input.node->consumers_.push_back({node.get(), i, input.index});
  }
  by_name_.emplace(node->name_, node.get());
  names_in_use_.try_emplace(absl::AsciiStrToLower(node->name_), 1);
  nodes_.push_back(std::move(node));
  return nodes_.back().get();
}

absl::Status Graph::UpdateInput(Node& node, int i, Output input) {
  if (i < 0 || i >= node.num_inputs())
    return InvalidArgument("Node '", node.name(), "' has no input ", i);
  if (!input || input.index < 0 || input.index >= input.node->num_outputs()) {
    return InvalidArgument("Output ", input.index, " of node ", input ? input.node->name() : "",
                           " does not exist. Node only has ", input ? input.node->num_outputs() : 0,
                           " outputs.");
  }
  const DType wanted = node.input_types_[i];
  if (BaseType(input.dtype()) != BaseType(wanted) || (IsRef(wanted) && !IsRef(input.dtype()))) {
    return InvalidArgument("Input ", i, " of node ", node.name(), " was passed ",
                           DTypeName(input.dtype()), " from ", input.name(),
                           " incompatible with expected ", DTypeName(wanted), ".");
  }
  const Output old = node.inputs_[i];
  if (old.node != nullptr) {
    auto& consumers = old.node->consumers_;
    consumers.erase(
        std::remove_if(consumers.begin(), consumers.end(),
                       [&](const Node::Consumer& c) { return c.node == &node && c.input == i; }),
        consumers.end());
  }
  node.inputs_[i] = input;
  input.node->consumers_.push_back({&node, i, input.index});
  return absl::OkStatus();
}

void Graph::AddControlInput(Node& node, Node& before) {
  auto& list = node.control_inputs_;
  if (std::find(list.begin(), list.end(), &before) == list.end()) list.push_back(&before);
}

void Graph::RemoveControlInput(Node& node, Node& before) {
  auto& list = node.control_inputs_;
  list.erase(std::remove(list.begin(), list.end(), &before), list.end());
}

void Graph::Rewire(std::vector<Wiring> wiring) {
  std::vector<std::unique_ptr<Node>> old = std::move(nodes_);
  nodes_.clear();
  nodes_.reserve(wiring.size());
  by_name_.clear();
  for (Wiring& wanted : wiring) {
    std::unique_ptr<Node>& owner = old[wanted.node->id_];
    CHECK(owner.get() == wanted.node && wanted.inputs.size() == wanted.node->inputs_.size());
    Node& node = *owner;
    if (!wanted.new_name.empty()) node.name_ = std::move(wanted.new_name);
    node.inputs_ = std::move(wanted.inputs);
    node.control_inputs_ = std::move(wanted.control_inputs);
    node.consumers_.clear();
    CHECK(by_name_.emplace(node.name_, &node).second);
    names_in_use_.try_emplace(absl::AsciiStrToLower(node.name_), 1);
    nodes_.push_back(std::move(owner));
  }
  for (size_t i = 0; i < nodes_.size(); ++i) {
    Node& node = *nodes_[i];
    node.id_ = static_cast<int>(i);
    for (int input = 0; input < node.num_inputs(); ++input) {
      node.inputs_[input].node->consumers_.push_back({&node, input, node.inputs_[input].index});
    }
  }
}

void Graph::RemoveNewestNodes(int count) {
  absl::flat_hash_set<const Node*> sources;
  for (int i = num_nodes() - 1; i >= count; --i) {
    const Node& node = *nodes_[i];
    by_name_.erase(node.name_);
    names_in_use_.erase(absl::AsciiStrToLower(node.name_));
    for (const Output& input : node.inputs_) {
      if (input && input.node->id_ < count) sources.insert(input.node);
    }
  }
  for (const Node* source : sources) {
    auto& consumers = nodes_[source->id_]->consumers_;
    consumers.erase(std::remove_if(consumers.begin(), consumers.end(),
                                   [&](const Node::Consumer& c) { return c.node->id_ >= count; }),
                    consumers.end());
  }
  nodes_.resize(count);
}

Node* Graph::FindNode(absl::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : found->second;
}

bool Graph::NameInUse(absl::string_view name) const {
  return names_in_use_.contains(absl::AsciiStrToLower(name));
}

std::string Graph::UniqueName(absl::string_view name, bool mark_as_used) {
  const std::string key = absl::AsciiStrToLower(name);
  const auto found = names_in_use_.find(key);
  int next = found == names_in_use_.end() ? 0 : found->second;
  if (mark_as_used) names_in_use_[key] = next + 1;
  if (next == 0) return std::string(name);
  std::string candidate;
  std::string candidate_key = key;
  while (names_in_use_.contains(candidate_key)) {
    candidate_key = absl::StrCat(key, "_", next);
    ++next;
  }
  if (mark_as_used) {
    names_in_use_[key] = next;
    names_in_use_[candidate_key] = 1;
  }
  return absl::StrCat(name, "_", next - 1);
}

bool IsValidNodeName(absl::string_view name, bool allow_internal) {
  if (name.empty()) return false;
  const auto good_start = [&](char c) {
    return absl::ascii_isalnum(c) || c == '.' || (allow_internal && c == '_');
  };
  bool at_start = true;
  for (char c : name) {
    if (at_start
            ? !good_start(c)
            : !(absl::ascii_isalnum(c) || absl::StrContains("_.\\-/>", absl::string_view(&c, 1)))) {
      return false;
    }
    at_start = c == '>';
  }
  return !at_start;
}

bool IsValidScopeName(absl::string_view name) {
  for (char c : name) {
    if (!absl::ascii_isalnum(c) && !absl::StrContains("_.\\-/>", absl::string_view(&c, 1)))
      return false;
  }
  return !name.empty();
}

SeedPair SeedsFor(const Graph& graph, std::optional<int64_t> op_seed) {
  constexpr int64_t kDefaultGraphSeed = 87654321;
  constexpr int64_t kModulus = 2147483647;  // 2^31 - 1
  const auto wrap = [](int64_t seed) {
    const int64_t rest = seed % kModulus;
    return rest < 0 ? rest + kModulus : rest;
  };
  if (!graph.seed && !op_seed) return {0, 0};
  SeedPair pair;
  pair.seed = wrap(graph.seed.value_or(kDefaultGraphSeed));
  // TensorFlow counts from the id of the newest op, which starts at one.
  pair.seed2 = wrap(op_seed ? *op_seed : graph.num_nodes());
  if (pair.seed == 0 && pair.seed2 == 0) pair.seed2 = kModulus;
  return pair;
}

}  // namespace muster
