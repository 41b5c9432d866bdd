#include "muster/graph/rewrite/rewriter.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"

#include "muster/base/check.h"
#include "muster/base/status.h"

namespace muster {
namespace {

bool IsNextIteration(const Node& node) {
  return node.op() == "NextIteration" || node.op() == "RefNextIteration";
}

}  // namespace

bool IsControlFlow(const Node& node) {
  static const auto* ops = new absl::flat_hash_set<absl::string_view>{
      "Switch",         "Merge",    "Enter",    "Exit",      "NextIteration",    "LoopCond",
      "RefSwitch",      "RefMerge", "RefEnter", "RefExit",   "RefNextIteration", "_SwitchN",
      "ControlTrigger", "_Send",    "_Recv",    "_HostSend", "_HostRecv"};
  return ops->contains(node.op());
}

bool MayKillOutputs(const Node& node) {
  const std::string& op = node.op();
  return op == "Switch" || op == "RefSwitch" || op == "_SwitchN" || op == "_Recv" ||
         op == "_HostRecv";
}

const Tensor* ConstValue(const Node& node) {
  if (node.op() != "Const") return nullptr;
  const AttrValue* value = node.FindAttr("value");
  return value == nullptr ? nullptr : value->get<Tensor>();
}

bool HandsOnMemory(const Node& node) {
  return (node.op() == "Identity" || node.op() == "Reshape") && !IsRef(node.input(0).dtype());
}

bool IsWrittenTo(const Node& node) {
  std::vector<const Node*> open = {&node};
  for (size_t at = 0; at < open.size(); ++at) {
    for (const Node::Consumer& consumer : open[at]->consumers()) {
      if (consumer.input != 0) continue;
      if (absl::StartsWith(consumer.node->op(), "Inplace")) return true;
      if (HandsOnMemory(*consumer.node)) open.push_back(consumer.node);
    }
  }
  return false;
}

bool IsMutable(DType type) {
  return IsRef(type) || BaseType(type) == DType::kResource || BaseType(type) == DType::kVariant;
}

GraphRewriter::GraphRewriter(Graph& graph) : graph_(graph) {
  CountWaiting();
  is_result_.resize(graph.num_nodes());
  for (const auto& node : graph.nodes()) {
    is_result_[node->id()] = node->consumers().empty() && waiting_[node->id()] == 0;
  }
}

void GraphRewriter::CountWaiting() {
  waiting_.assign(graph_.num_nodes(), 0);
  place_.resize(graph_.num_nodes());
  for (const auto& node : graph_.nodes()) {
    place_[node->id()] = node->id();
    for (const Node* before : node->control_inputs()) ++waiting_[before->id()];
  }
}

std::vector<Node*> GraphRewriter::Order() const {
  std::vector<int> missing(graph_.num_nodes(), 0);
  std::vector<std::vector<int>> waiting(graph_.num_nodes());
  // A topological sort in which the first ready node comes first: the order of creation where
  // possible.
  std::vector<Node*> order;
  order.reserve(graph_.num_nodes());
  for (const auto& node : graph_.nodes()) {
    for (const Output& input : node->inputs()) missing[node->id()] += !IsNextIteration(*input.node);
    for (const Node* before : node->control_inputs()) {
      if (IsNextIteration(*before)) continue;
      ++missing[node->id()];
      waiting[before->id()].push_back(node->id());
    }
    if (missing[node->id()] == 0) order.push_back(node.get());
  }
  for (size_t at = 0; at < order.size(); ++at) {
    const Node& node = *order[at];
    if (IsNextIteration(node)) continue;
    for (const Node::Consumer& reader : node.consumers()) {
      if (--missing[reader.node->id()] == 0) order.push_back(reader.node);
    }
    for (int id : waiting[node.id()]) {
      if (--missing[id] == 0) order.push_back(graph_.nodes()[id].get());
    }
  }
  return order;
}

Output GraphRewriter::Resolve(Output output) const {
  for (auto found = instead_.find(output); found != instead_.end(); found = instead_.find(output)) {
    output = found->second;
  }
  return output;
}

bool GraphRewriter::IsHidden(const Node& node) const {
  return node.consumers().size() == 1 && num_waiting(node) == 0 && !is_result(node);
}

std::vector<Node*> GraphRewriter::ControlInputsOfAll(absl::Span<const Node* const> nodes) const {
  std::vector<Node*> list;
  absl::flat_hash_set<const Node*> seen;
  for (const Node* node : nodes) {
    if (node == nullptr) continue;
    for (Node* before : ControlInputs(*node))
      if (seen.insert(before).second) list.push_back(before);
  }
  return list;
}

std::vector<Node*> GraphRewriter::ControlInputs(const Node& node) const {
  if (node.control_inputs().empty()) return {};
  std::vector<Node*> list;
  absl::flat_hash_set<const Node*> seen;
  std::vector<Node*> open(node.control_inputs().rbegin(), node.control_inputs().rend());
  while (!open.empty()) {
    Node* before = open.back();
    open.pop_back();
    if (!seen.insert(before).second) continue;
    const auto found = wait_instead_.find(before);
    if (found == wait_instead_.end()) {
      list.push_back(before);
    } else {
      open.insert(open.end(), found->second.rbegin(), found->second.rend());
    }
  }
  return list;
}

void GraphRewriter::Replace(Output from, Output to) {
  CHECK(from.base_dtype() == to.base_dtype() && Resolve(to) != from);
  instead_[from] = to;
  changed_ = true;
}

void GraphRewriter::WaitInstead(const Node& node, std::vector<Node*> others) {
  wait_instead_[&node] = std::move(others);
  changed_ = true;
}

absl::StatusOr<Node*> GraphRewriter::Add(const Node& old, NodeSpec spec) {
  spec.device = old.device();
  ASSIGN_OR_RETURN(Node * node, graph_.AddNode(std::move(spec)));
  waiting_.push_back(0);
  is_result_.push_back(false);
  place_.push_back(place_[old.id()]);
  changed_ = true;
  return node;
}

absl::StatusOr<Node*> GraphRewriter::Substitute(Node& old, NodeSpec spec) {
  spec.name = graph_.UniqueName(absl::StrCat(old.name(), "/instead"));
  ASSIGN_OR_RETURN(Node * node, Add(old, std::move(spec)));
  CHECK(node->output_types() == old.output_types());
  for (int i = 0; i < old.num_outputs(); ++i) Replace(Output(&old, i), Output(node, i));
  WaitInstead(old, {node});
  is_result_[node->id()] = is_result_[old.id()];
  is_result_[old.id()] = false;
  takes_name_of_[node] = &old;
  return node;
}

void GraphRewriter::Commit() {
  if (!changed_) return;
  std::vector<Graph::Wiring> wiring(graph_.num_nodes());
  std::vector<bool> needed(graph_.num_nodes(), false);
  std::vector<Node*> open;
  const auto need = [&](Node* node) {
    if (!needed[node->id()]) {
      needed[node->id()] = true;
      open.push_back(node);
    }
  };
  absl::flat_hash_set<const Node*> substituted;
  for (const auto& [node, old] : takes_name_of_) substituted.insert(old);
  for (const auto& node : graph_.nodes()) {
    const bool has_effects = node->def().is_stateful && !substituted.contains(node.get());
    if (is_result_[node->id()] || has_effects) need(node.get());
  }
  while (!open.empty()) {
    Node* node = open.back();
    open.pop_back();
    Graph::Wiring& wanted = wiring[node->id()];
    wanted.node = node;
    wanted.inputs.reserve(node->num_inputs());
    for (const Output& input : node->inputs()) {
      wanted.inputs.push_back(Resolve(input));
      need(wanted.inputs.back().node);
    }
    wanted.control_inputs = ControlInputs(*node);
    for (Node* before : wanted.control_inputs) need(before);
    const auto name = takes_name_of_.find(node);
    if (name != takes_name_of_.end()) wanted.new_name = name->second->name();
  }
  std::vector<int> ids;
  for (int id = 0; id < graph_.num_nodes(); ++id) {
    if (needed[id]) ids.push_back(id);
  }
  std::stable_sort(ids.begin(), ids.end(), [&](int a, int b) { return place_[a] < place_[b]; });
  std::vector<Graph::Wiring> kept;
  std::vector<bool> is_result;
  kept.reserve(ids.size());
  for (int id : ids) {
    kept.push_back(std::move(wiring[id]));
    is_result.push_back(is_result_[id]);
  }
  graph_.Rewire(std::move(kept));
  is_result_ = std::move(is_result);
  instead_.clear();
  wait_instead_.clear();
  takes_name_of_.clear();
  changed_ = false;
  CountWaiting();
}

}  // namespace muster
