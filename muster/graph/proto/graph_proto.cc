#include "muster/graph/proto/graph_proto.h"

#include <algorithm>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "tensorflow/core/framework/graph.pb.h"
#include "tensorflow/core/framework/op_def.pb.h"

#include "muster/base/status.h"
#include "muster/graph/infer.h"
#include "muster/graph/op_registry.h"
#include "muster/graph/proto/attr_value_proto.h"
#include "muster/graph/proto/function_proto.h"
#include "muster/tensor/tensor_proto.h"

namespace muster {
namespace {

constexpr absl::string_view kColocation = "_class";
constexpr absl::string_view kColocationPrefix = "loc:@";
constexpr absl::string_view kInputShapes = "_input_shapes";
constexpr absl::string_view kOutputShapes = "_output_shapes";

bool IsMerge(absl::string_view op) {
  return op == "Merge" || op == "RefMerge";
}
bool IsNextIteration(absl::string_view op) {
  return op == "NextIteration" || op == "RefNextIteration";
}

absl::Status CheckVersions(const tensorflow::VersionDef& versions) {
  if (versions.producer() < 0) {
    return InvalidArgument(
        "GraphDef producer version ", versions.producer(),
        " below min producer 0 supported by TensorFlow 2.21.0.  Please regenerate your graph.");
  }
  if (versions.min_consumer() > kGraphDefConsumer) {
    return InvalidArgument("GraphDef min consumer version ", versions.min_consumer(),
                           " above current version ", kGraphDefConsumer,
                           " for TensorFlow 2.21.0.  Please upgrade TensorFlow.");
  }
  for (int bad : versions.bad_consumers()) {
    if (bad == kGraphDefConsumer) {
      return InvalidArgument("GraphDef disallows consumer version ", bad,
                             ".  Please upgrade TensorFlow: this version is likely buggy.");
    }
  }
  return absl::OkStatus();
}

void MergeVersions(const tensorflow::VersionDef& from, GraphVersions& into) {
  into.producer = std::min(into.producer, from.producer());
  into.min_consumer = std::max(into.min_consumer, from.min_consumer());
  std::set<int> bad(into.bad_consumers.begin(), into.bad_consumers.end());
  bad.insert(from.bad_consumers().begin(), from.bad_consumers().end());
  into.bad_consumers.assign(bad.begin(), bad.end());
}

absl::Status InvalidOutput(const tensorflow::NodeDef& node, const Node& source, int index) {
  const std::string& op = source.def().name;
  const bool calls = op == "If" || op == "StatelessIf" || op == "While" || op == "StatelessWhile";
  return InvalidArgument(
      "Node '", node.name(), "': Connecting to invalid output ", index, " of source node ",
      source.name(), " which has ", source.num_outputs(), " outputs.",
      calls ? " Try using tf.compat.v1.experimental.output_all_intermediates(True)." : "");
}

// One import. Nodes are made as soon as their inputs exist, the first in the GraphDef first.
class Importer {
 public:
  Importer(Graph& graph, const tensorflow::GraphDef& proto, const ImportOptions& options)
      : graph_(graph), proto_(proto), options_(options) {}

  absl::StatusOr<ImportResults> Run() {
    RETURN_IF_ERROR(CheckVersions(proto_.versions()));
    for (const auto& [name, output] : options_.input_map)
      input_map_[ParseTensorName(name)] = output;
    RETURN_IF_ERROR(IndexNodes());
    RETURN_IF_ERROR(IndexNames());
    RETURN_IF_ERROR(IndexEdges());
    ASSIGN_OR_RETURN(new_functions_, ImportFunctions(graph_, proto_.library()));
    // Before the nodes: what shape rules accept depends on them.
    if (options_.adopt_versions) {
      graph_.versions() = GraphVersions();
      graph_.versions().producer = proto_.versions().producer();
    }
    if (proto_.has_versions()) MergeVersions(proto_.versions(), graph_.versions());
    RETURN_IF_ERROR(MakeNodes());
    RETURN_IF_ERROR(CloseLoops());
    RETURN_IF_ERROR(CollectResults());
    return std::move(results_);
  }

  void Undo(int nodes_before) {
    graph_.RemoveNewestNodes(nodes_before);
    for (const std::string& name : new_functions_) graph_.functions().erase(name);
    graph_.versions() = versions_before_;
  }

 private:
  struct Item {
    int waits_for = 0;       // inputs that do not exist yet
    std::vector<int> wakes;  // once per edge
    Node* made = nullptr;
  };
  struct BackEdge {
    Node* merge;
    int input;
    TensorName source;
  };

  absl::Status IndexNodes() {
    items_.resize(proto_.node_size());
    for (int i = 0; i < proto_.node_size(); ++i) {
      const tensorflow::NodeDef& node = proto_.node(i);
      if (!IsValidNodeName(node.name(), options_.allow_internal_names)) {
        return InvalidArgument("Node '", node.name(), "': Node name contains invalid characters");
      }
      if (!index_.emplace(node.name(), i).second)
        return InvalidArgument("Node '", node.name(), "' is not unique");
      if (node.op().empty())
        return InvalidArgument("Node '", node.name(), "' does not specify an operation");
      bool control = false;
      for (const std::string& input : node.input()) {
        if (absl::StartsWith(input, "^")) {
          control = true;
        } else if (control) {
          return InvalidArgument("Node '", node.name(),
                                 "': Control dependencies must come after regular dependencies");
        }
      }
    }
    return absl::OkStatus();
  }

  // Names that the graph has already, with the scopes above them.
  void IndexTakenNames() {
    for (const auto& node : graph_.nodes()) {
      absl::string_view name = node->name();
      taken_.emplace(name);
      for (size_t at = name.find('/'); at != absl::string_view::npos; at = name.find('/', at + 1)) {
        taken_.emplace(name.substr(0, at));
      }
    }
  }

  absl::Status IndexNames() {
    absl::string_view prefix = options_.prefix;
    absl::ConsumeSuffix(&prefix, "/");
    results_.prefix = std::string(prefix);
    if (!prefix.empty() || options_.uniquify_names) IndexTakenNames();
    if (!prefix.empty()) {
      if (!IsValidNodeName(prefix, options_.allow_internal_names)) {
        return InvalidArgument("Imported node name prefix '", prefix,
                               "/' would lead to invalid node names");
      }
      if (options_.uniquify_prefix) {
        for (int i = 1; taken_.contains(results_.prefix); ++i)
          results_.prefix = absl::StrCat(prefix, "_", i);
      } else if (taken_.contains(prefix) && !options_.uniquify_names) {
        return InvalidArgument("Import node name prefix '", prefix,
                               "' conflicts with name already used in the graph");
      }
      return absl::OkStatus();
    }
    if (options_.uniquify_names) return absl::OkStatus();
    for (const tensorflow::NodeDef& node : proto_.node()) {
      if (graph_.FindNode(node.name()) != nullptr) {
        return InvalidArgument("Node name '", node.name(), "' already exists in the Graph");
      }
    }
    return absl::OkStatus();
  }

  // The data edge from a NextIteration into a Merge, which closes a loop.
  bool IsBackEdge(const tensorflow::NodeDef& node, const TensorName& input) const {
    if (!IsMerge(node.op()) || input.is_control() || input_map_.contains(input)) return false;
    const auto source = index_.find(input.node);
    return source != index_.end() && IsNextIteration(proto_.node(source->second).op());
  }

  absl::Status IndexEdges() {
    for (int i = 0; i < proto_.node_size(); ++i) {
      const tensorflow::NodeDef& node = proto_.node(i);
      int entries = 0;
      bool has_back_edge = false;
      for (const std::string& text : node.input()) {
        const TensorName input = ParseTensorName(text);
        if (input_map_.contains(input)) {
          ++entries;
          continue;
        }
        const auto source = index_.find(input.node);
        if (source == index_.end())
          return InvalidArgument("Node '", node.name(), "': Unknown input node '", text, "'");
        if (IsBackEdge(node, input)) {
          has_back_edge = true;
          continue;
        }
        entries += !input.is_control();
        ++items_[i].waits_for;
        items_[source->second].wakes.push_back(i);
      }
      // A loop that nothing enters never becomes ready.
      if (has_back_edge && entries == 0) ++items_[i].waits_for;
      if (items_[i].waits_for == 0) ready_.insert(i);
    }
    return absl::OkStatus();
  }

  absl::Status MakeNodes() {
    int made = 0;
    while (!ready_.empty()) {
      const int i = *ready_.begin();
      ready_.erase(ready_.begin());
      RETURN_IF_ERROR(MakeNode(i));
      ++made;
      for (int waiting : items_[i].wakes) {
        if (--items_[waiting].waits_for == 0) ready_.insert(waiting);
      }
    }
    if (made < proto_.node_size())
      return InvalidArgument(proto_.node_size() - made, " nodes in a cycle");
    return absl::OkStatus();
  }

  absl::Status MakeNode(int i) {
    const tensorflow::NodeDef& node = proto_.node(i);
    NodeSpec spec;
    spec.op = node.op();
    spec.name = NewName(node.name());
    spec.device = node.device().empty() ? options_.default_device : node.device();
    RETURN_IF_ERROR(ReadInputs(node, spec));
    for (const auto& [name, value] : node.attr()) {
      // TensorFlow's graph optimizer leaves it behind, with numbers below -1 for sizes that it does
      // not know.
      if (name == kInputShapes) continue;
      absl::StatusOr<AttrValue> attr = AttrValueFromProto(value);
      if (!attr.ok()) {
        return Suffixed(attr.status(), absl::StrCat("\n\t for attr '", name,
                                                    "'\n\t; NodeDef: {{node ", spec.name, "}}"));
      }
      // A value of no kind says as much as no value.
      if (attr->has_value()) spec.attrs.emplace(name, *std::move(attr));
    }
    RETURN_IF_ERROR(DropUnknownDefaults(node, spec.attrs));
    RETURN_IF_ERROR(RenameColocation(node.name(), spec.attrs));
    std::optional<KeepShapeErrors> keep;
    if (options_.keep_shape_errors) keep.emplace();
    absl::StatusOr<Node*> made = graph_.AddNode(std::move(spec));
    if (!made.ok()) return std::move(made).status();
    items_[i].made = *made;
    results_.nodes.push_back(*made);
    RETURN_IF_ERROR(CheckDeprecation((*made)->def()));
    RETURN_IF_ERROR(ApplyOutputShapes(**made));
    for (int k = 0; k < (*made)->num_inputs(); ++k) {
      if (!(*made)->input(k)) back_edges_.push_back({*made, k, ParseTensorName(node.input(k))});
    }
    return absl::OkStatus();
  }

  absl::Status ReadInputs(const tensorflow::NodeDef& node, NodeSpec& spec) {
    spec.flat_inputs.emplace();
    bool follows_imported = false;
    for (const std::string& text : node.input()) {
      const TensorName name = ParseTensorName(text);
      const auto mapped = input_map_.find(name);
      if (mapped != input_map_.end()) {
        used_keys_.insert(name);
        const Output& output = mapped->second;
        if (!output || output.index < 0) {
          return InvalidArgument("Node '", node.name(), "': Input '", text,
                                 "' is mapped to an output that does not exist");
        }
        if (!name.is_control() && output.index >= output.node->num_outputs())
          return InvalidOutput(node, *output.node, output.index);
        if (name.is_control()) {
          spec.control_inputs.push_back(output.node);
        } else {
          spec.flat_inputs->push_back(output);
        }
        continue;
      }
      if (IsBackEdge(node, name)) {
        spec.flat_inputs->push_back(Output());
        continue;
      }
      follows_imported = true;
      Node* source = items_[index_.at(name.node)].made;
      if (name.is_control()) {
        spec.control_inputs.push_back(source);
        continue;
      }
      if (name.index >= source->num_outputs()) {
        return InvalidOutput(node, *source, name.index);
      }
      spec.flat_inputs->push_back(Output(source, name.index));
    }
    if (!follows_imported) {
      spec.control_inputs.insert(spec.control_inputs.end(), options_.control_dependencies.begin(),
                                 options_.control_dependencies.end());
    }
    return absl::OkStatus();
  }

  // The name under which a node of the GraphDef is, or will be, found in the graph.
  std::string NewName(const std::string& name) {
    const std::string start = results_.prefix.empty() ? "" : absl::StrCat(results_.prefix, "/");
    const std::string full = absl::StrCat(start, name);
    if (!options_.uniquify_names || !taken_.contains(full) || !index_.contains(name)) return full;
    const auto known = renamed_.find(name);
    if (known != renamed_.end()) return known->second;
    std::string candidate;
    int suffix = 0;
    do {
      candidate = absl::StrCat(name, "_", ++suffix);
    } while (taken_.contains(absl::StrCat(start, candidate)) || index_.contains(candidate));
    candidate = absl::StrCat(start, candidate);
    taken_.insert(candidate);
    renamed_.emplace(name, candidate);
    return candidate;
  }

  absl::Status RenameColocation(const std::string& node_name, AttrMap& attrs) {
    const auto found = attrs.find(kColocation);
    if (found == attrs.end()) return absl::OkStatus();
    const auto* list = found->second.get<std::vector<std::string>>();
    if (list == nullptr) return absl::OkStatus();
    std::vector<std::string> renamed = *list;
    for (std::string& entry : renamed) {
      absl::string_view name = entry;
      if (!absl::ConsumePrefix(&name, kColocationPrefix)) continue;
      if (options_.validate_colocation && !index_.contains(name) &&
          !(options_.colocate_with_existing && graph_.FindNode(name) != nullptr)) {
        return InvalidArgument("Node '", node_name, "' expects to be colocated with unknown node '",
                               name, "'");
      }
      entry = absl::StrCat(kColocationPrefix, NewName(std::string(name)));
    }
    found->second = AttrValue(std::move(renamed));
    return absl::OkStatus();
  }

  absl::Status DropUnknownDefaults(const tensorflow::NodeDef& node, AttrMap& attrs) {
    if (options_.producer_ops == nullptr) return absl::OkStatus();
    const OpRegistration* ours = OpRegistry::Global().Find(node.op());
    if (ours == nullptr) return absl::OkStatus();
    for (const tensorflow::OpDef& theirs : options_.producer_ops->op()) {
      if (theirs.name() != node.op()) continue;
      for (const auto& attr : theirs.attr()) {
        const auto given = attrs.find(attr.name());
        if (given == attrs.end() || ours->def.FindAttr(attr.name()) != nullptr ||
            !attr.has_default_value())
          continue;
        ASSIGN_OR_RETURN(AttrValue default_value, AttrValueFromProto(attr.default_value()));
        if (given->second == default_value) attrs.erase(given);
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckDeprecation(const OpDef& op) const {
    const int producer = proto_.versions().producer();
    if (op.deprecated_at_version == 0 || producer < op.deprecated_at_version)
      return absl::OkStatus();
    return Unimplemented("Op ", op.name, " is not available in GraphDef version ", producer,
                         ". It has been removed in version ", op.deprecated_at_version, ". ",
                         op.deprecation_text, ".");
  }

  // _output_shapes tells what inference may not know; it must not contradict it, and is not kept.
  absl::Status ApplyOutputShapes(Node& node) {
    const auto found = node.attrs().find(kOutputShapes);
    if (found == node.attrs().end()) return absl::OkStatus();
    if (const auto* shapes = found->second.get<std::vector<PartialShape>>()) {
      const int count = std::min(node.num_outputs(), static_cast<int>(shapes->size()));
      for (int i = 0; i < count; ++i) {
        absl::StatusOr<PartialShape> merged = node.output_shape(i).Merge((*shapes)[i]);
        if (!merged.ok()) {
          return Prefixed(merged.status(),
                          absl::StrCat("Node '", node.name(),
                                       "' has an _output_shapes attribute inconsistent with the "
                                       "GraphDef for output #",
                                       i, ": "));
        }
        node.set_output_shape(i, *std::move(merged));
      }
    }
    node.ClearAttr(kOutputShapes);
    return absl::OkStatus();
  }

  absl::Status CloseLoops() {
    for (const BackEdge& edge : back_edges_) {
      Node* source = items_[index_.at(edge.source.node)].made;
      RETURN_IF_ERROR(
          graph_.UpdateInput(*edge.merge, edge.input, Output(source, edge.source.index)));
    }
    return absl::OkStatus();
  }

  absl::Status CollectResults() {
    std::vector<std::string> missing;
    for (const auto& [text, output] : options_.input_map) {
      const TensorName name = ParseTensorName(text);
      if (used_keys_.contains(name)) continue;
      const auto node = index_.find(name.node);
      if (node == index_.end() || name.index >= items_[node->second].made->num_outputs())
        missing.push_back(name.ToString());
    }
    if (!missing.empty()) {
      return InvalidArgument("Attempted to map inputs that were not found in graph_def: [",
                             absl::StrJoin(missing, ", "), "]");
    }
    for (const std::string& text : options_.return_outputs) {
      const TensorName name = ParseTensorName(text);
      if (const auto mapped = input_map_.find(name); mapped != input_map_.end()) {
        results_.outputs.push_back(mapped->second);
        continue;
      }
      const auto node = index_.find(name.node);
      if (node == index_.end()) {
        return InvalidArgument("Requested return tensor '", name.ToString(),
                               "' not found in graph def");
      }
      Node* made = items_[node->second].made;
      if (name.index < 0 || name.index >= made->num_outputs()) {
        return InvalidArgument("Invalid return output ", name.index, " of node '", name.node,
                               "', which has ", made->num_outputs(), " output(s)");
      }
      results_.outputs.push_back(Output(made, name.index));
    }
    for (const std::string& name : options_.return_nodes) {
      const auto node = index_.find(name);
      if (node == index_.end())
        return InvalidArgument("Requested return node '", name, "' not found in graph def");
      results_.return_nodes.push_back(items_[node->second].made);
    }
    return absl::OkStatus();
  }

  Graph& graph_;
  const tensorflow::GraphDef& proto_;
  const ImportOptions& options_;
  absl::flat_hash_map<TensorName, Output> input_map_;
  absl::flat_hash_set<TensorName> used_keys_;
  absl::flat_hash_map<std::string, int> index_;  // GraphDef name -> position
  std::vector<Item> items_;
  std::set<int> ready_;
  absl::flat_hash_set<std::string> taken_;
  absl::flat_hash_map<std::string, std::string> renamed_;
  std::vector<BackEdge> back_edges_;
  std::vector<std::string> new_functions_;
  const GraphVersions versions_before_ = graph_.versions();
  ImportResults results_;
};

bool HasDefault(const Node& node, const std::string& name, const AttrValue& value) {
  const AttrDef* attr = node.def().FindAttr(name);
  return attr != nullptr && attr->default_value && *attr->default_value == value;
}

}  // namespace

std::string TensorName::ToString() const {
  return is_control() ? absl::StrCat("^", node) : absl::StrCat(node, ":", index);
}

TensorName ParseTensorName(absl::string_view text) {
  if (absl::ConsumePrefix(&text, "^")) return {std::string(text), -1};
  const size_t colon = text.rfind(':');
  if (colon == absl::string_view::npos || colon == 0 || colon + 1 == text.size())
    return {std::string(text), 0};
  const absl::string_view digits = text.substr(colon + 1);
  int index = 0;
  if (!std::all_of(digits.begin(), digits.end(), absl::ascii_isdigit) ||
      !absl::SimpleAtoi(digits, &index)) {
    return {std::string(text), 0};
  }
  return {std::string(text.substr(0, colon)), index};
}

absl::StatusOr<ImportResults> ImportGraph(Graph& into, const tensorflow::GraphDef& proto,
                                          const ImportOptions& options) {
  const int before = into.num_nodes();
  Importer importer(into, proto, options);
  absl::StatusOr<ImportResults> results = importer.Run();
  if (!results.ok()) importer.Undo(before);
  return results;
}

absl::Status NodeToProto(const Node& node, const ExportOptions& options,
                         tensorflow::NodeDef& proto) {
  proto.Clear();
  proto.set_name(node.name());
  proto.set_op(node.op());
  proto.set_device(node.device());
  for (const Output& input : node.inputs()) {
    if (!input) return Internal("Node '", node.name(), "' has an input that was never set");
    proto.add_input(input.index == 0 ? input.node->name() : input.name());
  }
  std::vector<std::string> control_inputs;
  for (const Node* before : node.control_inputs())
    control_inputs.push_back(absl::StrCat("^", before->name()));
  std::sort(control_inputs.begin(), control_inputs.end());
  for (std::string& input : control_inputs) proto.add_input(std::move(input));
  auto& attrs = *proto.mutable_attr();
  for (const auto& [name, value] : node.attrs()) {
    if (options.strip_defaults && HasDefault(node, name, value)) continue;
    const absl::Status written = AttrValueToProto(value, attrs[name]);
    if (!written.ok())
      return Prefixed(written, absl::StrCat("Node '", node.name(), "', attr '", name, "': "));
  }
  if (options.add_shapes && node.num_outputs() > 0) {
    auto& list = *attrs[std::string(kOutputShapes)].mutable_list();
    list.Clear();
    for (int i = 0; i < node.num_outputs(); ++i)
      PartialShapeToProto(node.output_shape(i), *list.add_shape());
  }
  return absl::OkStatus();
}

absl::Status GraphToProto(const Graph& graph, const ExportOptions& options,
                          tensorflow::GraphDef& proto) {
  proto.Clear();
  for (int i = std::max(options.from_version, 0); i < graph.num_nodes(); ++i) {
    RETURN_IF_ERROR(NodeToProto(*graph.nodes()[i], options, *proto.add_node()));
  }
  const GraphVersions& versions = graph.versions();
  proto.mutable_versions()->set_producer(versions.producer);
  proto.mutable_versions()->set_min_consumer(versions.min_consumer);
  for (int bad : versions.bad_consumers) proto.mutable_versions()->add_bad_consumers(bad);
  if (!graph.functions().empty())
    RETURN_IF_ERROR(FunctionsToProto(graph, *proto.mutable_library()));
  return absl::OkStatus();
}

}  // namespace muster
