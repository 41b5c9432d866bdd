// Graphs as TensorFlow's GraphDef: export, and import with all the rules of TensorFlow's own
// importer.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "muster/graph/graph.h"

namespace tensorflow {
class GraphDef;
class NodeDef;
class OpList;
}  // namespace tensorflow

namespace muster {

// The GraphDef version up to which we read graphs: TensorFlow 2.21's.
inline constexpr int kGraphDefConsumer = 2474;

struct ExportOptions {
  bool add_shapes = false;      // static shapes as _output_shapes
  bool strip_defaults = false;  // leave out attributes that have their default value
  int from_version = 0;         // only nodes made after the graph had that many
};
// Replaces what `proto` holds. Nodes come in the order in which they were made, control inputs
// sorted by name.
absl::Status GraphToProto(const Graph& graph, const ExportOptions& options,
                          tensorflow::GraphDef& proto);
absl::Status NodeToProto(const Node& node, const ExportOptions& options,
                         tensorflow::NodeDef& proto);

struct ImportOptions {
  std::string prefix;            // "" or "a/b" (a trailing slash is fine)
  bool uniquify_prefix = false;  // "a" -> "a_1" where "a" is taken
  bool uniquify_names =
      false;  // node names (with their prefix) that are taken get a suffix instead of an error
  // Tensor names of the GraphDef ("x:0", "x") and the outputs of `into` that replace them; "^x"
  // replaces a control input by the output's node.
  std::vector<std::pair<std::string, Output>> input_map;
  std::vector<std::string> return_outputs;  // tensor names
  std::vector<std::string> return_nodes;
  // Nodes that read nothing inside the GraphDef run after these.
  std::vector<Node*> control_dependencies;
  std::string default_device;  // for nodes without a device
  bool validate_colocation = true;
  bool colocate_with_existing = false;  // groups may also name nodes that `into` has already
  bool allow_internal_names = false;  // names that start with "_", as masters send them to workers
  // The graph takes over the versions of the GraphDef instead of the lower producer of both: for
  // servers that hold the graphs of their clients.
  bool adopt_versions = false;
  // See KeepShapeErrors.
  bool keep_shape_errors = false;
  // The ops of the program that made the graph: attributes we do not know are dropped where they
  // hold its defaults.
  const tensorflow::OpList* producer_ops = nullptr;
};

struct ImportResults {
  std::string prefix;        // as used, without a slash
  std::vector<Node*> nodes;  // all new ones, in the order in which they were made
  std::vector<Output>
      outputs;  // per return_outputs; an entry of input_map where the tensor was replaced
  std::vector<Node*> return_nodes;
};

// Adds the nodes and functions of `proto` to `into`. Nodes may come in any order; cycles must pass
// through NextIteration -> Merge. On error `into` has the nodes it had before.
absl::StatusOr<ImportResults> ImportGraph(Graph& into, const tensorflow::GraphDef& proto,
                                          const ImportOptions& options = {});

// "node", "node:2" or "^node" (index -1), as inputs of nodes are written.
struct TensorName {
  std::string node;
  int index = 0;
  bool is_control() const { return index < 0; }
  std::string ToString() const;  // "node:0", "^node"
  friend bool operator==(const TensorName&, const TensorName&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const TensorName& name) {
    return H::combine(std::move(h), name.node, name.index);
  }
};
TensorName ParseTensorName(absl::string_view text);

}  // namespace muster
