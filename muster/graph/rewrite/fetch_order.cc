#include "muster/graph/rewrite/fetch_order.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace muster {
namespace {

// How many more branches and loops a node is in than its inputs are.
int Deeper(absl::string_view op) {
  op = absl::StripPrefix(op, "Ref");
  if (op == "Switch" || op == "_SwitchN") return 1;
  if (op == "Merge") return -1;
  // Two: the Merge at the head of a loop does not leave it.
  if (op == "Enter") return 2;
  if (op == "Exit") return -2;
  return 0;
}

// By node id: 0 for those that run whenever the step does.
std::vector<int> Depths(const Graph& graph) {
  constexpr int kUnknown = -1;
  constexpr int kOpen = -2;
  std::vector<int> depths(graph.num_nodes(), kUnknown);
  std::vector<std::pair<const Node*, bool>> open;  // node, whether its inputs are done
  const auto known = [&](const Node& node) { return std::max(depths[node.id()], 0); };
  for (const auto& start : graph.nodes()) {
    open.emplace_back(start.get(), false);
    while (!open.empty()) {
      const auto [node, is_done] = open.back();
      open.pop_back();
      int& depth = depths[node->id()];
      if (!is_done) {
        if (depth != kUnknown) continue;
        depth = kOpen;  // met again below: the back edge of a loop, which adds nothing
        open.emplace_back(node, true);
        for (const Output& input : node->inputs()) open.emplace_back(input.node, false);
        for (const Node* before : node->control_inputs()) open.emplace_back(before, false);
        continue;
      }
      int deepest = 0;
      for (const Output& input : node->inputs()) deepest = std::max(deepest, known(*input.node));
      for (const Node* before : node->control_inputs()) deepest = std::max(deepest, known(*before));
      depth = std::max(deepest + Deeper(node->op()), 0);
    }
  }
  return depths;
}

}  // namespace

const Node* ReferencedVariable(Output reference, const Graph& graph) {
  const Node* node = reference.node;
  // Bounded: references may pass around a loop.
  for (int i = 0; i < graph.num_nodes() && node->num_inputs() > 0 && IsRef(node->input_types()[0]);
       ++i)
    node = node->input(0).node;
  return node;
}

const Node* FetchedVariable(const Node& fetch, const Graph& graph) {
  if (fetch.num_inputs() != 1) return nullptr;
  Output source = fetch.input(0);
  if (!IsRef(source.dtype()) && source.node->op() == "Identity") source = source.node->input(0);
  return IsRef(source.dtype()) ? ReferencedVariable(source, graph) : nullptr;
}

void FetchAfterUpdates(Graph& graph, absl::Span<Node* const> fetches) {
  std::map<const Node*, std::vector<Node*>> fetched;  // by variable
  for (Node* fetch : fetches) {
    if (const Node* variable = FetchedVariable(*fetch, graph)) fetched[variable].push_back(fetch);
  }
  if (fetched.empty()) return;
  std::vector<std::pair<Node*, Node*>> orders;
  for (const auto& node : graph.nodes()) {
    for (int i = 0; i < node->num_inputs(); ++i) {
      if (!IsRef(node->input_types()[i])) continue;
      const auto found = fetched.find(ReferencedVariable(node->input(i), graph));
      if (found == fetched.end()) continue;
      for (Node* fetch : found->second) orders.emplace_back(fetch, node.get());
    }
  }
  if (orders.empty()) return;
  const std::vector<int> depths = Depths(graph);
  for (const auto& [fetch, change] : orders) {
    if (depths[change->id()] == 0 && depths[fetch->id()] == 0)
      graph.AddControlInput(*fetch, *change);
  }
}

}  // namespace muster
