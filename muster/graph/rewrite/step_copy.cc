#include "muster/graph/rewrite/step_copy.h"

namespace muster {
namespace {

Output OnlyOutput(const Node& node) {
  return Output(const_cast<Node*>(&node), 0);
}

}  // namespace

StepCopy::StepCopy(const Graph& graph) : graph_(graph) {
  copy_->versions() = graph.versions();
}

bool StepCopy::Replace(const Output& output) {
  return !connected_.contains(output) && fed_.insert(output).second;
}

bool StepCopy::Connect(const Output& replaced, const Output& source) {
  return !fed_.contains(replaced) && connected_.emplace(replaced, source).second;
}

bool StepCopy::IsReplaced(const Node& node) const {
  return (node.op() == "Placeholder" || node.op() == "PlaceholderV2") &&
         IsReplaced(OnlyOutput(node));
}

void StepCopy::Need(const Output& output) {
  if (!IsReplaced(output)) return Need(output.node);
  if (!read_.insert(output).second) return;
  const auto connection = connected_.find(output);
  if (connection != connected_.end()) Need(connection->second);
}

void StepCopy::Need(const Node* node) {
  if (needed_.insert(node).second) open_.push_back(node);
}

void StepCopy::Need(const std::vector<Output>& outputs, const std::vector<Node*>& nodes) {
  for (const Output& output : outputs) Need(output);
  for (const Node* const node : nodes) Need(node);
  while (!open_.empty()) {
    const Node* const node = open_.back();
    open_.pop_back();
    for (const Output& input : node->inputs()) Need(input);
    for (const Node* const before : node->control_inputs()) {
      if (IsReplaced(*before)) {
        Need(OnlyOutput(*before));
      } else {
        Need(before);
      }
    }
  }
}

std::string StepCopy::FreshName(std::string prefix) const {
  while (graph_.FindNode(prefix) != nullptr || copy_->FindNode(prefix) != nullptr) prefix += "_";
  return prefix;
}

absl::Status StepCopy::CopyNodes(
    absl::FunctionRef<absl::Status(const Node& original, Node& copy)> finish) {
  for (const auto& node : graph_.nodes()) {
    if (!needed_.contains(node.get())) continue;
    std::vector<Output> inputs;
    for (const Output& input : node->inputs()) inputs.push_back(Mapped(input));
    std::vector<Node*> control;
    for (const Node* const before : node->control_inputs()) {
      if (Node* const mapped = MappedControl(*before)) {
        control.push_back(mapped);
      } else {
        late_control_.emplace_back(node.get(), before);
      }
    }
    Node* const copy = copy_->AddCopy(*node, node->name(), std::move(inputs), std::move(control));
    copies_[node.get()] = copy;
    order_.push_back(node.get());
    RETURN_IF_ERROR(finish(*node, *copy));
  }
  return absl::OkStatus();
}

Output StepCopy::Mapped(const Output& output) const {
  if (IsReplaced(output)) {
    const auto found = stand_ins_.find(output);
    return found == stand_ins_.end() ? Output() : found->second;
  }
  const auto found = copies_.find(output.node);
  return found == copies_.end() ? Output() : Output(found->second, output.index);
}

Node* StepCopy::MappedControl(const Node& before) const {
  if (IsReplaced(before)) return Mapped(OnlyOutput(before)).node;
  const auto found = copies_.find(&before);
  return found == copies_.end() ? nullptr : found->second;
}

absl::Status StepCopy::CloseGaps() {
  for (const Node* const original : order_) {
    Node& copy = *copies_[original];
    for (int i = 0; i < original->num_inputs(); ++i) {
      if (copy.input(i)) continue;
      RETURN_IF_ERROR(copy_->UpdateInput(copy, i, Mapped(original->input(i))));
    }
  }
  for (const auto& [node, before] : late_control_)
    copy_->AddControlInput(*copies_[node], *MappedControl(*before));
  return absl::OkStatus();
}

}  // namespace muster
