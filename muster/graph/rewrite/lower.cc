#include "muster/graph/rewrite/lower.h"

#include <algorithm>

#include "muster/base/status.h"
#include "muster/graph/gradients/function_gradient.h"
#include "muster/graph/proto/function_proto.h"
#include "muster/graph/rewrite/lowering.h"

namespace muster {
namespace {

bool IsCall(const Node& node) {
  return node.op() == "PartitionedCall" || node.op() == "StatefulPartitionedCall";
}
bool IsIf(const Node& node) {
  return node.op() == "If" || node.op() == "StatelessIf";
}
bool IsWhile(const Node& node) {
  return node.op() == "While" || node.op() == "StatelessWhile";
}
bool IsCase(const Node& node) {
  return node.op() == "Case" || node.op() == "StatelessCase";
}
bool IsGradient(const Node& node) {
  return node.op() == kSymbolicGradient;
}
// A call under the function's own name.
bool IsDirectCall(const Node& node, const Graph& library) {
  return library.functions().contains(node.op());
}

}  // namespace

absl::StatusOr<LoweredGraph> Lowering::Run() {
  CopyFunctions(library_, *result_);
  RETURN_IF_ERROR(CopyNodes());
  // Nodes that are added on the way are looked at too.
  for (int i = 0; i < result_->num_nodes(); ++i) {
    Node& node = *result_->nodes()[i];
    const absl::Status status = Lower(node);
    if (!status.ok())
      return Suffixed(status,
                      absl::StrCat("\n\t [[while writing out {{node ", node.name(), "}}]]"));
  }
  return Finish();
}

absl::Status Lowering::CopyNodes() {
  result_->versions() = original_.versions();
  for (const auto& node : original_.nodes()) {
    std::vector<Output> inputs;
    for (const Output& input : node->inputs()) {
      const auto copy = copies_.find(input.node);
      inputs.push_back(copy == copies_.end() ? Output() : Output(copy->second, input.index));
    }
    copies_[node.get()] = result_->AddCopy(*node, node->name(), std::move(inputs), {});
  }
  for (const auto& node : original_.nodes()) {
    Node& copy = *copies_[node.get()];
    for (int i = 0; i < node->num_inputs(); ++i) {
      if (copy.input(i)) continue;
      const Output& input = node->input(i);
      RETURN_IF_ERROR(result_->UpdateInput(copy, i, Output(copies_[input.node], input.index)));
    }
    for (const Node* before : node->control_inputs()) Wait(copy, *copies_[before]);
  }
  return absl::OkStatus();
}

std::string Lowering::NewName(absl::string_view prefix) {
  std::string name;
  do {
    name = absl::StrCat(prefix, "/_", next_number_++);
  } while (result_->FindNode(name) != nullptr);
  return name;
}

absl::StatusOr<Node*> Lowering::Add(NodeSpec spec) {
  const std::vector<Node*> control = spec.control_inputs;
  ASSIGN_OR_RETURN(Node* const node, result_->AddNode(std::move(spec)));
  for (Node* before : control) waiting_[before].push_back(node);
  if (chain_ != nullptr) chains_[node] = chain_;
  return node;
}

void Lowering::Wait(Node& node, Node& before) {
  result_->AddControlInput(node, before);
  waiting_[&before].push_back(&node);
}

absl::Status Lowering::Replace(Node& node, std::vector<Output> outputs, Node& executed) {
  NodeSpec spec;
  spec.name = NewName(absl::StrCat(node.name(), "/lowered"));
  --next_number_;
  spec.device = node.device();
  spec.control_inputs = {&executed};
  spec.op = "NoOp";
  if (!outputs.empty()) {
    spec.op = "IdentityN";
    spec.inputs = {NodeInput(outputs)};
  }
  ASSIGN_OR_RETURN(Node* const stand_in, Add(std::move(spec)));
  const std::vector<Node::Consumer> consumers = node.consumers();
  for (const Node::Consumer& consumer : consumers) {
    RETURN_IF_ERROR(result_->UpdateInput(*consumer.node, consumer.input, outputs[consumer.output]));
  }
  for (Node* after : waiting_[&node]) {
    result_->RemoveControlInput(*after, node);
    if (after != stand_in) Wait(*after, executed);
  }
  waiting_.erase(&node);
  for (size_t i = 0; i < outputs.size(); ++i)
    moved_[Output(&node, static_cast<int>(i))] = outputs[i];
  stand_ins_[&node] = stand_in;
  takes_name_[stand_in] = node.name();
  return absl::OkStatus();
}

absl::Status Lowering::Lower(Node& node) {
  const auto chain = chains_.find(&node);
  chain_ = chain == chains_.end() ? nullptr : chain->second;
  if (IsDirectCall(node, library_)) return LowerDirectCall(node);
  if (IsCall(node)) return LowerCall(node);
  if (IsGradient(node)) return LowerGradient(node);
  if (!HasTrueAttr(node.attrs(), "_lower_using_switch_merge")) return absl::OkStatus();
  if (IsIf(node) && node.input(0).base_dtype() == DType::kBool) return LowerIf(node);
  if (IsCase(node)) return LowerCase(node);
  if (IsWhile(node)) return LowerWhile(node);
  return absl::OkStatus();
}

LoweredGraph Lowering::Finish() {
  LoweredGraph lowered;
  for (const auto& [original, copy] : copies_) {
    const auto stand_in = stand_ins_.find(copy);
    lowered.nodes[original] = stand_in == stand_ins_.end() ? copy : stand_in->second;
    for (int i = 0; i < copy->num_outputs(); ++i) {
      const auto moved = moved_.find(Output(copy, i));
      lowered.outputs[Output(const_cast<Node*>(original), i)] =
          moved == moved_.end() ? Output(copy, i) : moved->second;
    }
  }
  std::vector<Graph::Wiring> wiring;
  for (const auto& node : result_->nodes()) {
    if (stand_ins_.contains(node.get())) continue;
    Graph::Wiring kept{node.get(), node->inputs(), node->control_inputs(), ""};
    const auto name = takes_name_.find(node.get());
    if (name != takes_name_.end()) kept.new_name = name->second;
    wiring.push_back(std::move(kept));
  }
  result_->Rewire(std::move(wiring));
  lowered.graph = std::move(result_);
  return lowered;
}

bool IsFunctional(const Node& node, const Graph& library) {
  return IsCall(node) || IsIf(node) || IsWhile(node) || IsCase(node) || IsGradient(node) ||
         IsDirectCall(node, library);
}

absl::StatusOr<LoweredGraph> LowerFunctions(const Graph& graph, const Graph& library) {
  return Lowering(graph, library).Run();
}

absl::StatusOr<std::shared_ptr<const LoweredGraph>> LowerIfNeeded(const Graph& graph) {
  const bool needed =
      std::any_of(graph.nodes().begin(), graph.nodes().end(),
                  [&graph](const auto& node) { return IsFunctional(*node, graph); });
  if (!needed) return nullptr;
  ASSIGN_OR_RETURN(LoweredGraph lowered, LowerFunctions(graph, graph));
  return std::make_shared<const LoweredGraph>(std::move(lowered));
}

StepSignature LoweredGraph::Translate(const StepSignature& signature) const {
  StepSignature translated;
  for (const Output& feed : signature.feeds) translated.feeds.push_back(outputs.at(feed));
  for (const Output& fetch : signature.fetches) {
    const bool is_fed =
        std::find(signature.feeds.begin(), signature.feeds.end(), fetch) != signature.feeds.end();
    translated.fetches.push_back(is_fed ? outputs.at(fetch)
                                        : Output(nodes.at(fetch.node), fetch.index));
  }
  for (const Node* target : signature.targets) translated.targets.push_back(nodes.at(target));
  return translated;
}

absl::flat_hash_map<Output, Output> LoweredGraph::Moved() const {
  absl::flat_hash_map<Output, Output> moved;
  for (const auto& [original, output] : outputs) {
    const Output same(nodes.at(original.node), original.index);
    if (same != output) moved.emplace(same, output);
  }
  return moved;
}

}  // namespace muster
