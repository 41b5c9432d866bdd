#include "muster/graph/rewrite/variable_order.h"

#include <algorithm>
#include <optional>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"

#include "muster/graph/control_flow/control_flow.h"

namespace muster {
namespace {

constexpr int kMostReaders = 64;    // of a variable
constexpr size_t kMostAfter = 256;  // nodes behind an assignment that are looked at
constexpr int kFarBehind = 8;       // nodes, on the longest way
constexpr int kLongestChain = 4;    // of nodes that take one value each

bool IsRead(const Node& node) {
  if (node.num_inputs() != 1) return false;
  return node.op() == "ReadVariableOp" || (node.op() == "Identity" && IsRef(node.input(0).dtype()));
}

// Ops whose results never share memory with what they take.
bool ComputesOnly(const Node& node) {
  static constexpr absl::string_view kOps[] = {"Add",
                                               "AddN",
                                               "AddV2",
                                               "BatchMatMul",
                                               "BatchMatMulV2",
                                               "BiasAdd",
                                               "Conv2D",
                                               "Conv2DBackpropInput",
                                               "FusedBatchNorm",
                                               "FusedBatchNormV2",
                                               "FusedBatchNormV3",
                                               "GatherV2",
                                               "L2Loss",
                                               "MatMul",
                                               "Maximum",
                                               "Minimum",
                                               "Mul",
                                               "Neg",
                                               "Pow",
                                               "Rank",
                                               "RealDiv",
                                               "ResourceGather",
                                               "Rsqrt",
                                               "Shape",
                                               "ShapeN",
                                               "Size",
                                               "Sqrt",
                                               "Square",
                                               "SquaredDifference",
                                               "Sub",
                                               "Sum",
                                               "Tanh",
                                               "_FusedBatchNormEx",
                                               "_FusedConv2D",
                                               "_FusedMatMul"};
  if (node.op() == "Cast") return node.input_types()[0] != node.output_types()[0];
  return absl::c_linear_search(kOps, node.op());
}

// Ops behind an assignment whose effects nothing else can wait for: they stay in this partition.
bool StaysHere(const Node& node) {
  static const auto* const ops = new absl::flat_hash_set<absl::string_view>{
      "Identity", "NoOp", "_Retval", "_DeviceRetval", "_MusterCopyToHost"};
  return ops->contains(node.op()) || ComputesOnly(node) || IsRead(node) ||
         absl::StartsWith(node.op(), "Assign");
}

class Orderer {
 public:
  Orderer(const Graph& graph, const std::vector<bool>& is_constant,
          const std::vector<bool>& changes)
      : graph_(graph), is_constant_(is_constant), changes_(changes), after_(changes.size()) {
    for (const auto& node : graph.nodes()) {
      for (const Output& input : node->inputs()) after_[Index(*input.node)].push_back(node->id());
      for (const Node* const before : node->control_inputs())
        after_[Index(*before)].push_back(node->id());
    }
  }

  VariableOrder Order() && {
    FindDepths();
    for (const auto& node : graph_.nodes()) {
      DelayReading(*node);
      DelayComputing(*node);
    }
    for (const auto& node : graph_.nodes()) {
      if (changes_[Index(*node)]) PlaceChange(*node);
    }
    return std::move(order_);
  }

 private:
  static size_t Index(const Node& node) { return static_cast<size_t>(node.id()); }

  // --- Reading
  // The one input that is no constant; null where there are several, or none.
  const Node* OnlyInput(const Node& node) const {
    const Node* only = nullptr;
    for (const Output& input : node.inputs()) {
      if (is_constant_[Index(*input.node)]) continue;
      if (only != nullptr) return nullptr;
      only = input.node;
    }
    return only;
  }
  // What takes the node's value, if nothing else does anything with it.
  const Node* OnlyConsumer(const Node& node) const {
    return after_[Index(node)].size() == 1 && node.consumers().size() == 1
               ? node.consumers()[0].node
               : nullptr;
  }
  // Is computed of a variable alone, by few nodes.
  bool IsOfVariable(const Node& node) const {
    const Node* at = &node;
    for (int i = 0; i < kLongestChain && at != nullptr; ++i) {
      if (IsRead(*at)) return true;
      at = OnlyInput(*at);
    }
    return false;
  }

  // Where `node` is the beginning of what is computed of a variable for the sake of one other
  // value, it waits for that value. Since nothing but the node that joins the two comes behind it,
  // and that waits for the value anyway, there is no loop.
  void DelayReading(const Node& node) {
    const bool is_read = IsRead(node);
    if (!is_read) {
      // The first that computes something, of a value that others read as well.
      const Node* const input = OnlyInput(node);
      if (input == nullptr || !IsRead(*input) || OnlyConsumer(*input) != nullptr ||
          !ComputesOnly(node))
        return;
    }
    const Node* last = &node;
    for (int i = 0; i < kLongestChain; ++i) {
      const Node* const next = OnlyConsumer(*last);
      if (next == nullptr) return;
      if (OnlyInput(*next) == nullptr) {
        for (const Output& input : next->inputs()) {
          if (input.node == last || is_constant_[Index(*input.node)] || IsOfVariable(*input.node) ||
              IsRef(input.dtype()) || input.dtype() == DType::kResource)
            continue;
          return AddEdge(*input.node, node);
        }
        return;
      }
      last = next;
    }
  }

  // --- Computing
  // The number of nodes before each one, on the longest way.
  void FindDepths() {
    depths_.assign(after_.size(), 0);
    std::vector<int> waits(after_.size(), 0), open;
    for (const std::vector<int>& targets : after_)
      for (const int target : targets) ++waits[static_cast<size_t>(target)];
    for (size_t i = 0; i < waits.size(); ++i)
      if (waits[i] == 0) open.push_back(static_cast<int>(i));
    while (!open.empty()) {
      const auto at = static_cast<size_t>(open.back());
      open.pop_back();
      for (const int target : after_[at]) {
        const auto to = static_cast<size_t>(target);
        depths_[to] = std::max(depths_[to], depths_[at] + 1);
        if (--waits[to] == 0) open.push_back(target);
      }
    }
  }

  // What gradients need of a value alone is computed when they come, not kept since the value was
  // there: that is used by others as well, so it is kept anyway. There is no loop, as above.
  void DelayComputing(const Node& node) {
    static const auto* const joining =
        new absl::flat_hash_set<absl::string_view>{"Add", "AddN", "AddV2", "Mul", "RealDiv", "Sub"};
    const Node* const input = OnlyInput(node);
    const Node* const consumer = OnlyConsumer(node);
    if (input == nullptr || consumer == nullptr || !ComputesOnly(node) || IsRead(*input) ||
        OnlyConsumer(*input) != nullptr || !joining->contains(consumer->op()))
      return;
    for (const Output& other : consumer->inputs()) {
      if (other.node != &node && !is_constant_[Index(*other.node)] &&
          depths_[Index(*other.node)] >= depths_[Index(node)] + kFarBehind)
        return AddEdge(*other.node, node);
    }
  }

  // --- Changing
  // The nodes that take the variable's value, directly or from a node that reads it; none where it
  // is used in ways that are not known.
  std::optional<std::vector<const Node*>> UsersOf(const Node& variable, const Node& change) const {
    std::vector<const Node*> users;
    for (const Node::Consumer& consumer : variable.consumers()) {
      if (consumer.node == &change) continue;
      if (!IsRead(*consumer.node)) return std::nullopt;
      users.push_back(consumer.node);
      for (const Node::Consumer& user : consumer.node->consumers()) {
        if (!ComputesOnly(*user.node)) return std::nullopt;
        users.push_back(user.node);
      }
    }
    if (users.size() > static_cast<size_t>(kMostReaders)) return std::nullopt;
    return users;
  }

  void PlaceChange(const Node& change) {
    if (!absl::StartsWith(change.op(), "Assign")) return;
    const Node& variable = *change.input(0).node;
    if (variable.num_inputs() != 0) return;
    const std::optional<std::vector<const Node*>> users = UsersOf(variable, change);
    if (!users) return;
    // What reads the old value must not wait for the change: not here, and not by way of another
    // partition or of a queue.
    const std::optional<absl::flat_hash_set<int>> after = After(change);
    if (!after || absl::c_any_of(*after, [&](int id) { return !StaysHere(*graph_.nodes()[id]); }))
      return;
    for (const Node* const user : *users)
      if (after->contains(user->id())) return;
    for (const Node* const user : *users) AddEdge(*user, change);
    order_.changes.push_back(change.id());
  }

  std::optional<absl::flat_hash_set<int>> After(const Node& node) const {
    absl::flat_hash_set<int> found;
    std::vector<int> open = {node.id()};
    while (!open.empty()) {
      const int at = open.back();
      open.pop_back();
      for (const int next : after_[static_cast<size_t>(at)]) {
        if (found.size() == kMostAfter) return std::nullopt;
        if (found.insert(next).second) open.push_back(next);
      }
    }
    return found;
  }

  void AddEdge(const Node& from, const Node& to) {
    after_[Index(from)].push_back(to.id());
    order_.edges.emplace_back(from.id(), to.id());
  }

  const Graph& graph_;
  const std::vector<bool>& is_constant_;
  const std::vector<bool>& changes_;
  std::vector<std::vector<int>> after_;  // of each node, with the edges so far
  std::vector<int> depths_;
  VariableOrder order_;
};

bool HasControlFlow(const Graph& graph) {
  return std::any_of(graph.nodes().begin(), graph.nodes().end(), [](const auto& node) {
    static const auto* const ops = new absl::flat_hash_set<absl::string_view>{
        "Merge",         "RefMerge",         "Enter",   "RefEnter", "Exit", "RefExit",
        "NextIteration", "RefNextIteration", "_SwitchN"};
    return IsSwitch(*node) || ops->contains(node->op());
  });
}

}  // namespace

VariableOrder OrderVariables(const Graph& graph, const std::vector<bool>& is_constant,
                             const std::vector<bool>& changes) {
  if (HasControlFlow(graph)) return {};
  return Orderer(graph, is_constant, changes).Order();
}

}  // namespace muster
