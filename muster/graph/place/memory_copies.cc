#include "muster/graph/place/memory_copies.h"

#include "absl/strings/str_cat.h"

#include "muster/base/status.h"

namespace muster {

absl::Status AddMemoryCopies(
    Graph& part, bool has_results,
    const std::function<absl::StatusOr<HostArgs>(const Node&)>& host_args) {
  const int num_nodes = part.num_nodes();  // without the copies
  std::vector<HostArgs> args;
  for (const auto& node : part.nodes()) {
    ASSIGN_OR_RETURN(HostArgs of_node, host_args(*node));
    args.push_back(std::move(of_node));
  }
  // Results and other readers have copies of their own: a result is there later.
  absl::flat_hash_map<std::pair<Output, bool>, Node*> copies;
  for (int id = 0; id < num_nodes; ++id) {
    Node& node = *part.nodes()[id];
    for (int i = 0; i < node.num_inputs(); ++i) {
      const Output source = node.input(i);
      if (IsRef(node.input_types()[i])) continue;  // the variable itself is handed on, not its value
      const bool is_host = args[source.node->id()].outputs[source.index];
      const bool wants_host = args[id].inputs[i];
      if (is_host == wants_host) continue;
      const bool is_result = has_results && wants_host && node.op() == "_Retval";
      Node*& copy = copies[{source, is_result}];
      if (copy == nullptr) {
        NodeSpec spec;
        spec.op = wants_host ? "_MusterCopyToHost" : "_MusterCopyToDevice";
        spec.name = part.UniqueName(
            absl::StrCat(source.node->name(), "/", source.index,
                         is_result    ? "/result"
                         : wants_host ? "/host"
                                      : "/device"));
        if (is_result) spec.attrs["is_result"] = true;
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
