#include "muster/graph/place/control_loops.h"

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"

#include "muster/base/status.h"
#include "muster/graph/control_flow/control_flow.h"
#include "muster/graph/control_flow/frames.h"

namespace muster {
namespace {

using NewName = std::function<std::string(absl::string_view)>;

bool IsNextIteration(const Node& node) {
  return node.op() == "NextIteration" || node.op() == "RefNextIteration";
}

// Does no work of its own: goes where its value comes from or is needed.
bool IsMovable(const Node& node) {
  if (IsSwitch(node) || IsLoopExit(node)) return true;
  return (node.op() == "Enter" || IsNextIteration(node)) && !node.consumers().empty();
}

// The node whose device a movable one takes.
const Node& Anchor(const Node& node) {
  return IsSwitch(node) || IsLoopExit(node) ? *node.input(0).node : *node.consumers()[0].node;
}

absl::StatusOr<std::unique_ptr<Graph>> Copy(const Graph& graph) {
  auto result = std::make_unique<Graph>();
  result->versions() = graph.versions();
  std::vector<Node*> copies(graph.num_nodes(), nullptr);
  for (const auto& node : graph.nodes()) {
    std::vector<Output> inputs;
    for (const Output& input : node->inputs()) {
      Node* copy = copies[input.node->id()];
      inputs.push_back(copy == nullptr ? Output() : Output(copy, input.index));
    }
    copies[node->id()] = result->AddCopy(*node, node->name(), std::move(inputs), {});
  }
  for (const auto& node : graph.nodes()) {
    Node& copy = *copies[node->id()];
    for (int i = 0; i < node->num_inputs(); ++i) {
      const Output& input = node->input(i);
      if (copy.input(i)) continue;
      RETURN_IF_ERROR(result->UpdateInput(copy, i, Output(copies[input.node->id()], input.index)));
    }
    for (const Node* before : node->control_inputs())
      result->AddControlInput(copy, *copies[before->id()]);
  }
  return result;
}

// Chains of movable nodes end at one that stays. Where they only lead to each other, the first one
// stays.
void Move(Graph& graph) {
  enum class State : uint8_t { kNew, kUnderWay, kDone };
  std::vector<State> states(graph.num_nodes(), State::kNew);
  for (const auto& start : graph.nodes()) {
    std::vector<Node*> chain;
    Node* node = start.get();
    while (IsMovable(*node) && states[node->id()] == State::kNew) {
      states[node->id()] = State::kUnderWay;
      chain.push_back(node);
      node = graph.nodes()[Anchor(*node).id()].get();
    }
    for (Node* moved : chain) {
      moved->set_device(node->device());
      states[moved->id()] = State::kDone;
    }
  }
}

// Whether input `i` is a reference of another device that must not be read before other inputs have
// come. A Merge waits for nothing else.
bool IsLateRead(const Node& node, int i) {
  const Output& input = node.input(i);
  if (!IsRef(input.dtype()) || IsRef(node.input_types()[i]) || IsMerge(node)) return false;
  if (input.node->device() == node.device()) return false;
  return node.num_inputs() > 1 || !node.control_inputs().empty();
}

absl::Status AddReads(Graph& graph, const NewName& new_name) {
  const int count = graph.num_nodes();
  for (int id = 0; id < count; ++id) {
    Node& node = *graph.nodes()[id];
    for (int i = 0; i < node.num_inputs(); ++i) {
      if (!IsLateRead(node, i)) continue;
      const Output from = node.input(i);
      NodeSpec spec;
      spec.name = new_name(from.node->name());
      spec.op = "Identity";
      spec.inputs = {from};
      spec.control_inputs = node.control_inputs();
      for (const Output& other : node.inputs()) {
        if (!IsRef(other.dtype())) spec.control_inputs.push_back(other.node);
      }
      spec.device = from.node->device();
      ASSIGN_OR_RETURN(Node * read, graph.AddNode(std::move(spec)));
      RETURN_IF_ERROR(graph.UpdateInput(node, i, Output(read, 0)));
    }
  }
  return absl::OkStatus();
}

class LoopMaker {
 public:
  LoopMaker(Graph& graph, const NewName& new_name)
      : graph_(graph), new_name_(new_name), frames_(FindFrames(graph)) {
    conditions_.assign(frames_.frames.size(), nullptr);
    for (const auto& node : graph.nodes()) {
      const int frame = frames_.inside[node->id()];
      if (node->op() == "LoopCond") conditions_[frame] = node.get();
      // In a part that was cut before; the condition itself may be elsewhere.
      if (IsControlLoopMerge(*node)) merges_[{frame, node->device()}] = node.get();
    }
  }

  absl::Status Run() {
    const int count = graph_.num_nodes();
    for (int i = 0; i < count; ++i) {
      const Node& node = *graph_.nodes()[i];
      if (frames_.inside[i] == 0) continue;
      for (const Output& input : node.inputs()) RETURN_IF_ERROR(Check(*input.node, node));
      for (const Node* before : node.control_inputs()) RETURN_IF_ERROR(Check(*before, node));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Check(const Node& from, const Node& to) {
    if (from.device() == to.device()) return absl::OkStatus();
    return MergeFor(frames_.inside[to.id()], to).status();
  }

  // The Merge of the control loop for `frame` on the device of `reader`.
  absl::StatusOr<Node*> MergeFor(int frame, const Node& reader) {
    const auto key = std::make_pair(frame, reader.device());
    const auto found = merges_.find(key);
    if (found != merges_.end()) return found->second;
    Node* condition = conditions_[frame];
    if (condition == nullptr) {
      return InvalidArgument("A cross-device loop must have a pivot predicate: ",
                             frames_.frames[frame].name);
    }
    ASSIGN_OR_RETURN(const Output start, Start(frames_.frames[frame].parent, reader));
    const AttrMap frame_attrs = {{"frame_name", frames_.frames[frame].name},
                                 {"is_constant", false},
                                 {"parallel_iterations", frames_.frames[frame].parallel_iterations},
                                 {"T", DType::kFloat}};
    ASSIGN_OR_RETURN(Node * enter, Add("Enter", reader, {start}, frame_attrs));
    ASSIGN_OR_RETURN(Node * merge, Add("Merge", reader, {Output(enter, 0), Output()},
                                       {{"N", int64_t{2}}, {"T", DType::kFloat}}));
    ASSIGN_OR_RETURN(Node * branch, Add("Switch", reader, {Output(merge, 0), Output(condition, 0)},
                                        {{"T", DType::kFloat}}));
    ASSIGN_OR_RETURN(Node * next,
                     Add("NextIteration", reader, {Output(branch, 1)}, {{"T", DType::kFloat}}));
    RETURN_IF_ERROR(graph_.UpdateInput(*merge, 1, Output(next, 0)));
    merges_[key] = merge;
    return merge;
  }

  // What enters a control loop inside `frame`.
  absl::StatusOr<Output> Start(int frame, const Node& reader) {
    if (frame > 0) {
      ASSIGN_OR_RETURN(Node * merge, MergeFor(frame, reader));
      return Output(merge, 0);
    }
    NodeSpec spec;
    spec.name = new_name_(reader.name());
    spec.op = "Const";
    spec.attrs = {{"dtype", DType::kFloat}, {"value", Tensor(DType::kFloat, Shape({0}))}};
    spec.device = reader.device();
    ASSIGN_OR_RETURN(Node * node, graph_.AddNode(std::move(spec)));
    return Output(node, 0);
  }

  absl::StatusOr<Node*> Add(absl::string_view op, const Node& reader, std::vector<Output> inputs,
                            AttrMap attrs) {
    NodeSpec spec;
    spec.name = new_name_(absl::StrCat(kControlLoopPrefix, reader.name()));
    spec.op = std::string(op);
    spec.flat_inputs = std::move(inputs);
    spec.attrs = std::move(attrs);
    spec.device = reader.device();
    return graph_.AddNode(std::move(spec));
  }

  Graph& graph_;
  const NewName& new_name_;
  const Frames frames_;
  std::vector<Node*> conditions_;                                   // by frame
  absl::flat_hash_map<std::pair<int, std::string>, Node*> merges_;  // by frame and device
};

}  // namespace

bool IsControlLoopMerge(const Node& node) {
  return node.op() == "Merge" && absl::StartsWith(node.name(), kControlLoopPrefix);
}

absl::StatusOr<std::unique_ptr<Graph>> PrepareCut(
    const Graph& graph, const std::function<std::string(absl::string_view)>& new_name) {
  bool needed = false;
  for (const auto& node : graph.nodes()) {
    needed |= IsMovable(*node);
    for (int i = 0; i < node->num_inputs(); ++i) needed |= IsLateRead(*node, i);
  }
  if (!needed) return nullptr;
  ASSIGN_OR_RETURN(std::unique_ptr<Graph> copy, Copy(graph));
  Move(*copy);
  RETURN_IF_ERROR(AddReads(*copy, new_name));
  RETURN_IF_ERROR(LoopMaker(*copy, new_name).Run());
  return copy;
}

}  // namespace muster
