#include "muster/client/remote_session.h"
#include "muster/graph/proto/function_proto.h"

namespace muster {

std::shared_ptr<const GraphPiece> GraphPiece::Take(const Graph& graph, int first) {
  auto piece = std::make_shared<GraphPiece>();
  piece->nodes_.versions() = graph.versions();
  CopyFunctions(graph, piece->nodes_);
  for (int i = first; i < graph.num_nodes(); ++i) {
    const Node& node = *graph.nodes()[i];
    Links& links = piece->links_.emplace_back();
    for (const Output& input : node.inputs())
      links.inputs.emplace_back(input.node->name(), input.index);
    for (const Node* before : node.control_inputs()) links.control_inputs.push_back(before->name());
    piece->nodes_.AddCopy(node, node.name(), std::vector<Output>(node.num_inputs()), {});
  }
  return piece;
}

absl::Status GraphPiece::AddTo(Graph& graph) const {
  for (const auto& node : nodes_.nodes()) {
    if (graph.FindNode(node->name()) != nullptr) {
      return InvalidArgument("GraphDef argument to Extend includes node '", node->name(),
                             "', which was created by a previous call to Create or Extend in this "
                             "session.");
    }
  }
  const int before = graph.num_nodes();
  CopyFunctions(nodes_, graph);
  for (const auto& node : nodes_.nodes()) {
    graph.AddCopy(*node, node->name(), std::vector<Output>(node->num_inputs()), {});
  }
  // After all nodes exist, since nodes of loops read later ones.
  for (const auto& node : nodes_.nodes()) {
    Node& copy = *graph.FindNode(node->name());
    const Links& links = links_[node->id()];
    absl::Status status;
    for (size_t i = 0; i < links.inputs.size() && status.ok(); ++i) {
      const auto& [name, index] = links.inputs[i];
      Node* source = graph.FindNode(name);
      status = source == nullptr
                   ? InvalidArgument("Node '", node->name(), "': Unknown input node '", name, "'")
                   : graph.UpdateInput(copy, static_cast<int>(i), Output(source, index));
    }
    for (const std::string& name : links.control_inputs) {
      Node* source = graph.FindNode(name);
      if (source != nullptr) {
        graph.AddControlInput(copy, *source);
      } else if (status.ok()) {
        status = InvalidArgument("Node '", node->name(), "': Unknown input node '^", name, "'");
      }
    }
    if (!status.ok()) {
      graph.RemoveNewestNodes(before);
      return status;
    }
  }
  graph.versions() = nodes_.versions();
  return absl::OkStatus();
}

}  // namespace muster
