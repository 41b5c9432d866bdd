// A graph of nodes: each an op with inputs, attributes and a requested device. Types and static
// shapes are inferred as nodes are added, so a bad node never gets in.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"

#include "muster/graph/attr_value.h"
#include "muster/graph/op_def.h"

namespace muster {

class Graph;
class Node;
class ControlFlowContext;
struct BuildState;
struct OpRegistration;

// One output of a node.
struct Output {
  Node* node = nullptr;
  int index = 0;

  Output() = default;
  Output(Node* n, int i) : node(n), index(i) {}  // NOLINT(google-explicit-constructor)
  explicit operator bool() const { return node != nullptr; }
  DType dtype() const;  // may be a reference type
  DType base_dtype() const { return BaseType(dtype()); }
  const PartialShape& shape() const;  // unknown where there is no node
  std::string name() const;           // "node:0"
  friend bool operator==(const Output& a, const Output& b) = default;
  template <typename H>
  friend H AbslHashValue(H h, const Output& o) {
    return H::combine(std::move(h), o.node, o.index);
  }
};

// One argument of an op: a single output, or as many as a list argument takes.
class NodeInput {
 public:
  NodeInput(Output output)
      : outputs_({output}), is_list_(false) {}  // NOLINT(google-explicit-constructor)
  NodeInput(std::vector<Output> outputs)        // NOLINT(google-explicit-constructor)
      : outputs_(std::move(outputs)), is_list_(true) {}
  const std::vector<Output>& outputs() const { return outputs_; }
  std::vector<Output>& outputs() { return outputs_; }
  bool is_list() const { return is_list_; }

 private:
  std::vector<Output> outputs_;
  bool is_list_;
};

// Confined to its graph; thread-compatible.
class Node {
 public:
  int id() const { return id_; }
  const std::string& name() const { return name_; }
  const std::string& op() const;
  const OpDef& def() const;
  const OpRegistration& registration() const { return *registration_; }
  Graph& graph() const { return *graph_; }

  const AttrMap& attrs() const { return attrs_; }
  // The attribute, or its default where the node leaves it out.
  const AttrValue* FindAttr(absl::string_view name) const;
  template <typename T>
  absl::StatusOr<T> Attr(absl::string_view name) const;
  void SetAttr(absl::string_view name, AttrValue value) {
    attrs_.insert_or_assign(std::string(name), std::move(value));
  }
  void ClearAttr(absl::string_view name);

  int num_inputs() const { return static_cast<int>(inputs_.size()); }
  int num_outputs() const { return static_cast<int>(output_types_.size()); }
  const Output& input(int i) const { return inputs_[i]; }
  const std::vector<Output>& inputs() const { return inputs_; }
  const std::vector<Node*>& control_inputs() const { return control_inputs_; }
  const std::vector<DType>& input_types() const { return input_types_; }
  const std::vector<DType>& output_types() const { return output_types_; }
  Output output(int i) { return Output(this, i); }
  // Flat input/output range of the named argument; CHECKs that it exists (names come from code, not
  // from input).
  ArgRange InputRange(absl::string_view arg) const;
  ArgRange OutputRange(absl::string_view arg) const;

  const PartialShape& output_shape(int i) const { return output_shapes_[i]; }
  void set_output_shape(int i, PartialShape shape) { output_shapes_[i] = std::move(shape); }
  // What a resource output points to, as far as known; empty otherwise.
  const std::vector<DTypeAndShape>& output_handle(int i) const { return output_handles_[i]; }
  void set_output_handle(int i, std::vector<DTypeAndShape> handle) {
    output_handles_[i] = std::move(handle);
  }

  const std::string& device() const { return device_; }
  void set_device(std::string device) { device_ = std::move(device); }

  // Names after "loc:@" in the _class attribute.
  std::vector<std::string> ColocationGroups() const;

  // (consumer, input index) of every data edge out of this node, in the order in which edges were
  // made.
  struct Consumer {
    Node* node;
    int input;
    int output;
  };
  const std::vector<Consumer>& consumers() const { return consumers_; }

  ControlFlowContext* control_flow_context() const { return control_flow_context_; }
  void set_control_flow_context(ControlFlowContext* context) { control_flow_context_ = context; }

 private:
  friend class Graph;
  int id_ = 0;
  std::string name_;
  const OpRegistration* registration_ = nullptr;
  Graph* graph_ = nullptr;
  AttrMap attrs_;
  std::vector<Output> inputs_;
  std::vector<Node*> control_inputs_;
  std::vector<DType> input_types_;
  std::vector<DType> output_types_;
  std::vector<PartialShape> output_shapes_;
  std::vector<std::vector<DTypeAndShape>> output_handles_;
  std::vector<Consumer> consumers_;
  std::string device_;
  ControlFlowContext* control_flow_context_ = nullptr;
};

// All that makes a node. `name` is used as it stands; Scope makes names unique.
struct NodeSpec {
  std::string name;
  std::string op;
  std::vector<NodeInput> inputs;
  // Instead of `inputs`, for a node with all its type attributes, as in a GraphDef: list arguments
  // laid out flat. An Output without a node stands for a loop's back edge into a Merge; UpdateInput
  // sets it once its source exists.
  std::optional<std::vector<Output>> flat_inputs;
  std::vector<Node*> control_inputs;
  AttrMap attrs;
  std::string device;
};

// A function: a graph of its own whose arguments and results are _Arg and _Retval nodes.
struct Function {
  OpDef signature;
  AttrMap attrs;
  std::unique_ptr<Graph> body;  // instantiated lazily from `nodes` by graph_proto
  std::string serialized;       // the FunctionDef, kept for export
  std::string gradient;         // name of the function that differentiates this one, or empty
  // What nodes whose op is this function are made from.
  std::shared_ptr<const OpRegistration> registration;
};

struct GraphVersions {
  int producer = 134;  // TensorFlow 1.15's number: the form of graphs that our front ends build
  int min_consumer = 0;
  std::vector<int> bad_consumers;
};

// Thread-compatible.
class Graph {
 public:
  Graph();
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // Checks names, attributes, input types and shapes, fills in defaults, infers output types and
  // shapes.
  absl::StatusOr<Node*> AddNode(NodeSpec spec);
  // Replaces input `i`, e.g. to close a loop. Types must match; shapes are not inferred again.
  absl::Status UpdateInput(Node& node, int i, Output input);
  void AddControlInput(Node& node, Node& before);
  void RemoveControlInput(Node& node, Node& before);
  // Adds a node like `original` (of this or another graph), types and shapes included, without
  // inferring anything. An input without a node is set later with UpdateInput, which is how loops
  // are copied.
  Node* AddCopy(const Node& original, std::string name, std::vector<Output> inputs,
                std::vector<Node*> control_inputs);
  // Keeps only these nodes, in this order, with these inputs, all set at once: O(nodes + edges),
  // where UpdateInput walks the readers of every old input. Requires: each node once; inputs and
  // control inputs are kept too; types match.
  struct Wiring {
    Node* node;
    std::vector<Output> inputs;
    std::vector<Node*> control_inputs;
    std::string new_name;  // empty: as it was
  };
  void Rewire(std::vector<Wiring> wiring);
  // Takes back the newest nodes until `count` remain, e.g. after an import failed half-way.
  // Requires: older nodes do not read them.
  void RemoveNewestNodes(int count);

  Node* FindNode(absl::string_view name) const;
  // Creation order.
  const std::vector<std::unique_ptr<Node>>& nodes() const { return nodes_; }
  int num_nodes() const { return static_cast<int>(nodes_.size()); }

  // `name`, or `name_1`, `name_2`...: unique without regard to case. Marks it (and its scopes) as
  // used.
  std::string UniqueName(absl::string_view name, bool mark_as_used = true);
  bool NameInUse(absl::string_view name) const;

  GraphVersions& versions() { return versions_; }
  const GraphVersions& versions() const { return versions_; }

  absl::flat_hash_map<std::string, std::unique_ptr<Function>>& functions() { return functions_; }
  const absl::flat_hash_map<std::string, std::unique_ptr<Function>>& functions() const {
    return functions_;
  }

  // Graph-level seed for random ops; nothing when unset.
  std::optional<int64_t> seed;

  // Control-flow contexts and caches of the gradient builder: see build_state.h.
  BuildState& build_state();

 private:
  std::vector<std::unique_ptr<Node>> nodes_;
  absl::flat_hash_map<std::string, Node*> by_name_;
  absl::flat_hash_map<std::string, int> names_in_use_;  // lower case -> next suffix
  GraphVersions versions_;
  absl::flat_hash_map<std::string, std::unique_ptr<Function>> functions_;
  std::shared_ptr<BuildState> build_state_;  // shared only because the type is incomplete here
};

// Whether `name` follows the grammar of node names (`[A-Za-z0-9.][A-Za-z0-9_.\-/]*`, `>` joins
// namespaces).
bool IsValidNodeName(absl::string_view name, bool allow_internal = false);
// The same for name scopes.
bool IsValidScopeName(absl::string_view name);

// (seed, seed2) of a random op by the rule of TensorFlow 1.15; `op_seed` nothing when not given.
// Counts the nodes of the graph where only the graph has a seed.
struct SeedPair {
  int64_t seed = 0;
  int64_t seed2 = 0;
};
SeedPair SeedsFor(const Graph& graph, std::optional<int64_t> op_seed);

}  // namespace muster
