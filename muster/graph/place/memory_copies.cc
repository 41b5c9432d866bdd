#include "muster/graph/place/memory_copies.h"

#include "absl/strings/str_cat.h"

#include "muster/base/status.h"

namespace muster {

absl::Status AddMemoryCopies(
    Graph& part, const std::function<absl::StatusOr<HostArgs>(const Node&)>& host_args) {
  const int num_nodes = part.num_nodes();  // without the copies
  std::vector<HostArgs> args;
  for (const auto& node : part.nodes()) {
    ASSIGN_OR_RETURN(HostArgs of_node, host_args(*node));
    args.push_back(std::move(of_node));
  }
  absl::flat_hash_map<Output, Node*> copies;
  for (int id = 0; id < num_nodes; ++id) {
    Node& node = *part.nodes()[id];
    for (int i = 0; i < node.num_inputs(); ++i) {
      const Output source = node.input(i);
      if (IsRef(node.input_types()[i])) continue;  // the variable itself is handed on, not its value
      const bool is_host = args[source.node->id()].outputs[source.index];
      const bool wants_host = args[id].inputs[i];
      if (is_host == wants_host) continue;
      Node*& copy = copies[source];
      if (copy == nullptr) {
        NodeSpec spec;
        spec.op = wants_host ? "_MusterCopyToHost" : "_MusterCopyToDevice";
        spec.name = part.UniqueName(
            absl::StrCat(source.node->name(), "/", source.index, wants_host ? "/host" : "/device"));
        spec.inputs = {source};
        spec.device = node.device();
        ASSIGN_OR_RETURN(copy, part.AddNode(std::move(spec)));
      }
      RETURN_IF_ERROR(part.UpdateInput(node, i, Output(copy, 0)));
    }
  }
  return absl::OkStatus();
}

}  // namespace muster
