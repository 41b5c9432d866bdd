#include "muster/graph/control_flow/frames.h"

#include "absl/container/flat_hash_map.h"

#include "muster/graph/control_flow/control_flow.h"

namespace muster {

Frames FindFrames(const Graph& graph) {
  Frames result;
  result.frames.emplace_back();
  result.inside.assign(graph.num_nodes(), 0);
  result.outputs.assign(graph.num_nodes(), 0);
  bool has_loops = false;
  for (const auto& node : graph.nodes()) has_loops |= IsLoopEnter(*node);
  if (!has_loops) return result;

  std::vector<bool> seen(graph.num_nodes(), false);
  std::vector<std::vector<const Node*>> waiting(graph.num_nodes());
  std::vector<const Node*> open;
  for (const auto& node : graph.nodes()) {
    for (const Node* before : node->control_inputs()) waiting[before->id()].push_back(node.get());
    if (node->num_inputs() == 0 && node->control_inputs().empty()) {
      seen[node->id()] = true;
      open.push_back(node.get());
    }
  }
  absl::flat_hash_map<std::pair<int, std::string>, int> by_name;
  while (!open.empty()) {
    const Node* node = open.back();
    open.pop_back();
    int frame = result.inside[node->id()];
    if (IsLoopEnter(*node)) {
      const std::string name = node->Attr<std::string>("frame_name").value_or("");
      const auto [found, added] =
          by_name.try_emplace({frame, name}, static_cast<int>(result.frames.size()));
      if (added) {
        result.frames.push_back(
            {name, frame, node->Attr<int64_t>("parallel_iterations").value_or(1)});
      }
      frame = found->second;
    } else if (IsLoopExit(*node) && frame != 0) {
      frame = result.frames[frame].parent;
    }
    result.outputs[node->id()] = frame;
    const auto visit = [&](const Node* next) {
      if (seen[next->id()]) return;
      seen[next->id()] = true;
      result.inside[next->id()] = frame;
      open.push_back(next);
    };
    for (const Node::Consumer& reader : node->consumers()) visit(reader.node);
    for (const Node* next : waiting[node->id()]) visit(next);
  }
  return result;
}

}  // namespace muster
