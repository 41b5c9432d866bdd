#include "muster/master/step_graph.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "muster/base/status.h"
#include "muster/graph/fetch_order.h"
#include "muster/graph/function_proto.h"
#include "muster/graph/graph_proto.h"
#include "muster/graph/infer.h"
#include "muster/transport/cluster.h"

namespace muster {
namespace {

bool IsPlaceholder(const Node& node) {
  return node.op() == "Placeholder" || node.op() == "PlaceholderV2";
}

absl::StatusOr<Output> FindFeed(const Graph& graph, const MovedOutputs& moved,
                                absl::string_view text) {
  const TensorName name = ParseTensorName(text);
  Node* node = name.is_control() ? nullptr : graph.FindNode(name.node);
  if (node == nullptr) return NotFound("FeedInputs: unable to find feed output ", text);
  if (name.index >= node->num_outputs()) {
    return InvalidArgument("FeedInputs: ", text, " should have output index < ",
                           node->num_outputs());
  }
  const auto elsewhere = moved.find(Output(node, name.index));
  return elsewhere != moved.end() ? elsewhere->second : Output(node, name.index);
}

absl::StatusOr<Output> FindFetch(const Graph& graph, absl::string_view text) {
  const TensorName name = ParseTensorName(text);
  Node* node = name.is_control() ? nullptr : graph.FindNode(name.node);
  if (node == nullptr) return NotFound("FetchOutputs node ", text, ": not found");
  if (node->num_outputs() == 0) {
    return InvalidArgument("Tried to fetch data for '", text,
                           "', which produces no output.  To run to a node but not fetch any data, "
                           "pass '",
                           text,
                           "' as an argument to the 'target_node_names' argument of the "
                           "Session::Run API.");
  }
  if (name.index >= node->num_outputs()) {
    return InvalidArgument("FetchOutputs ", text, ": output index too large, must be < ",
                           node->num_outputs());
  }
  return Output(node, name.index);
}

class Builder {
 public:
  Builder(const Graph& graph, absl::Span<const std::string> devices, const MovedOutputs& moved,
          const StepNames& names, const DeviceAttributes& client)
      : graph_(graph),
        devices_(devices),
        moved_(moved),
        names_(names),
        client_(client),
        result_(std::make_unique<Graph>()) {}

  absl::StatusOr<std::unique_ptr<Graph>> Run() {
    RETURN_IF_ERROR(Check());
    RETURN_IF_ERROR(Find());
    FindNeeded();
    result_->versions() = graph_.versions();
    CopyFunctions(graph_, *result_);
    RETURN_IF_ERROR(AddFeeds());
    RETURN_IF_ERROR(CopyNodes());
    RETURN_IF_ERROR(AddConnections());
    RETURN_IF_ERROR(CloseGaps());
    RETURN_IF_ERROR(AddFetches());
    return std::move(result_);
  }

 private:
  absl::Status Check() const {
    if (names_.fetches.empty() && names_.targets.empty()) {
      return InvalidArgument("Must specify at least one target to fetch or execute.");
    }
    absl::flat_hash_set<std::string> given;
    for (const std::string& feed : names_.feeds) {
      if (!given.insert(feed).second)
        return InvalidArgument("Endpoint \"", feed, "\" fed more than once.");
    }
    for (const auto& [from, to] : names_.connections) {
      if (!given.insert(to).second)
        return InvalidArgument("Endpoint \"", to, "\" fed more than once.");
    }
    for (const std::string& fetch : names_.fetches) {
      if (given.contains(fetch)) return InvalidArgument(fetch, " is both fed and fetched.");
    }
    return absl::OkStatus();
  }

  absl::Status Find() {
    for (const std::string& feed : names_.feeds) {
      ASSIGN_OR_RETURN(feeds_.emplace_back(), FindFeed(graph_, moved_, feed));
      fed_.emplace(feeds_.back(), feeds_.size() - 1);
    }
    for (const auto& [from, to] : names_.connections) {
      ASSIGN_OR_RETURN(const Output source, FindFetch(graph_, from));
      ASSIGN_OR_RETURN(const Output replaced, FindFeed(graph_, moved_, to));
      if (source.base_dtype() != replaced.base_dtype()) {
        return InvalidArgument("Tensor ", from, " of type ", DTypeName(source.base_dtype()),
                               " cannot be connected to ", to, " of type ",
                               DTypeName(replaced.base_dtype()));
      }
      connected_.emplace(replaced, source);
    }
    for (const std::string& fetch : names_.fetches) {
      ASSIGN_OR_RETURN(fetches_.emplace_back(), FindFetch(graph_, fetch));
    }
    std::string missing;
    for (const std::string& target : names_.targets) {
      Node* node = graph_.FindNode(target);
      if (node == nullptr) absl::StrAppend(&missing, target, " ");
      targets_.push_back(node);
    }
    if (!missing.empty()) {
      return NotFound("PruneForTargets: Some target nodes not found: ", missing);
    }
    return absl::OkStatus();
  }

  // Reading `output` needs its node, unless something else stands in for it.
  void Need(const Output& output) {
    const auto fed = fed_.find(output);
    if (fed != fed_.end()) {
      used_feeds_.insert(fed->second);
      return;
    }
    const auto connection = connected_.find(output);
    if (connection != connected_.end()) {
      if (used_connections_.insert(output).second) Need(connection->second);
      return;
    }
    Need(output.node);
  }
  void Need(const Node* node) {
    if (needed_.insert(node).second) open_.push_back(node);
  }
  // What takes the place of a placeholder when others wait for it.
  bool IsReplaced(const Node& node) const {
    const Output only(const_cast<Node*>(&node), 0);
    return IsPlaceholder(node) && (fed_.contains(only) || connected_.contains(only));
  }

  void FindNeeded() {
    for (const Output& fetch : fetches_) Need(fetch);
    for (const Node* target : targets_) Need(target);
    while (!open_.empty()) {
      const Node* node = open_.back();
      open_.pop_back();
      for (const Output& input : node->inputs()) Need(input);
      for (const Node* before : node->control_inputs()) {
        if (IsReplaced(*before)) {
          Need(Output(const_cast<Node*>(before), 0));
        } else {
          Need(before);
        }
      }
    }
  }

  AttrMap ClientAttrs(const std::string& tensor) const {
    return {{"tensor_name", tensor},
            {"send_device", client_.name},
            {"send_device_incarnation", static_cast<int64_t>(client_.incarnation)},
            {"recv_device", client_.name},
            {"client_terminated", true}};
  }

  std::string FreshName(absl::string_view prefix, const Output& output) const {
    std::string name = absl::StrCat(prefix, output.node->name(), "_", output.index);
    while (graph_.FindNode(name) != nullptr || result_->FindNode(name) != nullptr) name += "_";
    return name;
  }

  absl::Status AddFeeds() {
    for (size_t i = 0; i < feeds_.size(); ++i) {
      if (!used_feeds_.contains(i)) continue;
      NodeSpec spec;
      spec.name = FreshName("_recv_", feeds_[i]);
      spec.op = "_Recv";
      spec.attrs = ClientAttrs(names_.feeds[i]);
      spec.attrs.emplace("tensor_type", feeds_[i].base_dtype());
      spec.device = client_.name;
      ASSIGN_OR_RETURN(Node * node, result_->AddNode(std::move(spec)));
      // Its shape stays unknown: callables may feed another one than the graph says.
      stand_ins_[feeds_[i]] = Output(node, 0);
    }
    return absl::OkStatus();
  }

  // No node while what stands for it is not there yet.
  Output Mapped(const Output& output) const {
    if (fed_.contains(output) || connected_.contains(output)) {
      const auto found = stand_ins_.find(output);
      return found == stand_ins_.end() ? Output() : found->second;
    }
    const auto copy = copies_.find(output.node);
    return copy == copies_.end() ? Output() : Output(copy->second, output.index);
  }
  Node* MappedControl(const Node& before) const {
    if (IsReplaced(before)) return Mapped(Output(const_cast<Node*>(&before), 0)).node;
    const auto copy = copies_.find(&before);
    return copy == copies_.end() ? nullptr : copy->second;
  }

  // What was known of shapes may not hold for what is fed.
  void InferAgain(const Node& original, Node& copy) const {
    bool is_open = false;
    bool differs = false;
    for (int i = 0; i < original.num_inputs(); ++i) {
      const Output& input = copy.input(i);
      is_open |= !input;
      differs |= input && !(input.shape() == original.input(i).shape());
    }
    if (!differs && !(is_open && !feeds_.empty())) return;
    for (int i = 0; i < copy.num_outputs(); ++i) copy.set_output_shape(i, PartialShape());
    if (is_open || InferShapes(copy).ok()) return;
    for (int i = 0; i < copy.num_outputs(); ++i) copy.set_output_shape(i, PartialShape());
  }

  absl::Status CopyNodes() {
    for (const auto& node : graph_.nodes()) {
      if (!needed_.contains(node.get())) continue;
      RETURN_IF_ERROR(KeptShapeError(*node));
      if (node->id() >= static_cast<int>(devices_.size()) || devices_[node->id()].empty()) {
        return absl::UnavailableError(
            absl::StrCat("Node '", node->name(), "' is being added and not placed yet"));
      }
      std::vector<Output> inputs;
      for (const Output& input : node->inputs()) inputs.push_back(Mapped(input));
      std::vector<Node*> control;
      for (const Node* before : node->control_inputs()) {
        if (Node* mapped = MappedControl(*before)) {
          control.push_back(mapped);
        } else {
          late_control_.emplace_back(node.get(), before);
        }
      }
      Node* copy = result_->AddCopy(*node, node->name(), std::move(inputs), std::move(control));
      copy->set_device(devices_[node->id()]);
      InferAgain(*node, *copy);
      copies_[node.get()] = copy;
      order_.push_back(node.get());
    }
    return absl::OkStatus();
  }

  absl::Status AddConnections() {
    for (const auto& [from, to] : names_.connections) {
      ASSIGN_OR_RETURN(const Output replaced, FindFeed(graph_, moved_, to));
      if (!used_connections_.contains(replaced)) continue;
      const Output source = Mapped(connected_.at(replaced));
      if (!source) {
        return InvalidArgument("Tensor ", from, ", connected to ", to,
                               ", is itself replaced by another connection");
      }
      NodeSpec spec;
      spec.name = FreshName("_identity_", replaced);
      spec.op = "Identity";
      spec.inputs = {source};
      spec.device = devices_[replaced.node->id()];
      ASSIGN_OR_RETURN(Node * node, result_->AddNode(std::move(spec)));
      stand_ins_[replaced] = Output(node, 0);
    }
    return absl::OkStatus();
  }

  // Inputs that come later in the order: back edges of loops, connections, graphs that were
  // imported unordered.
  absl::Status CloseGaps() {
    for (const Node* original : order_) {
      Node& copy = *copies_[original];
      for (int i = 0; i < original->num_inputs(); ++i) {
        if (copy.input(i)) continue;
        RETURN_IF_ERROR(result_->UpdateInput(copy, i, Mapped(original->input(i))));
      }
    }
    for (const auto& [node, before] : late_control_) {
      result_->AddControlInput(*copies_[node], *MappedControl(*before));
    }
    return absl::OkStatus();
  }

  // A variable of the client's task is read at the end of the step; one of another task is on its
  // way by then, in TensorFlow too.
  bool IsReadAtTheEnd(const Node& fetch) const {
    const Node* variable = FetchedVariable(fetch, *result_);
    return variable != nullptr && TaskOfDevice(variable->device()) == TaskOfDevice(client_.name);
  }

  absl::Status AddFetches() {
    std::vector<Node*> last;
    for (size_t i = 0; i < fetches_.size(); ++i) {
      NodeSpec spec;
      spec.name = FreshName("_send_", fetches_[i]);
      spec.op = "_Send";
      spec.inputs = {Mapped(fetches_[i])};
      spec.attrs = ClientAttrs(names_.fetches[i]);
      spec.attrs.emplace("T", fetches_[i].base_dtype());
      spec.device = client_.name;
      ASSIGN_OR_RETURN(Node * fetch, result_->AddNode(std::move(spec)));
      if (IsReadAtTheEnd(*fetch)) last.push_back(fetch);
    }
    // What a partial run fetches must not wait for what it is fed later.
    if (!names_.is_partial) FetchAfterUpdates(*result_, last);
    return absl::OkStatus();
  }

  const Graph& graph_;
  const absl::Span<const std::string> devices_;
  const MovedOutputs& moved_;
  const StepNames& names_;
  const DeviceAttributes& client_;
  std::unique_ptr<Graph> result_;
  std::vector<Output> feeds_;
  std::vector<Output> fetches_;
  std::vector<Node*> targets_;
  absl::flat_hash_map<Output, size_t> fed_;
  absl::flat_hash_map<Output, Output> connected_;  // by what is replaced
  absl::flat_hash_set<size_t> used_feeds_;
  absl::flat_hash_set<Output> used_connections_;
  absl::flat_hash_set<const Node*> needed_;
  std::vector<const Node*> open_;
  absl::flat_hash_map<Output, Output> stand_ins_;
  absl::flat_hash_map<const Node*, Node*> copies_;
  std::vector<const Node*> order_;
  std::vector<std::pair<const Node*, const Node*>> late_control_;
};

}  // namespace

std::string FullTensorName(absl::string_view name) {
  const TensorName parsed = ParseTensorName(name);
  return parsed.is_control() ? std::string(name) : parsed.ToString();
}

StepNames StepNames::Canonical() const {
  StepNames result = *this;
  for (std::string& feed : result.feeds) feed = FullTensorName(feed);
  for (std::string& fetch : result.fetches) fetch = FullTensorName(fetch);
  for (auto& [from, to] : result.connections) {
    from = FullTensorName(from);
    to = FullTensorName(to);
  }
  std::sort(result.feeds.begin(), result.feeds.end());
  std::sort(result.connections.begin(), result.connections.end());
  for (std::vector<std::string>* names : {&result.fetches, &result.targets}) {
    std::sort(names->begin(), names->end());
    names->erase(std::unique(names->begin(), names->end()), names->end());
  }
  return result;
}

std::string StepNames::ToString() const {
  std::string text = absl::StrCat(absl::StrJoin(feeds, ","), "->", absl::StrJoin(fetches, ","), "/",
                                  absl::StrJoin(targets, ","));
  for (const auto& [from, to] : connections) absl::StrAppend(&text, "/", from, "=>", to);
  if (is_partial) absl::StrAppend(&text, "/partial");
  return text;
}

std::string ClientKey(const DeviceAttributes& client, absl::string_view tensor) {
  return absl::StrFormat("%s;%016x;%s;%s;0:0", client.name, client.incarnation, client.name,
                         tensor);
}

absl::StatusOr<std::unique_ptr<Graph>> BuildStepGraph(const Graph& graph,
                                                      absl::Span<const std::string> devices,
                                                      const MovedOutputs& moved,
                                                      const StepNames& names,
                                                      const DeviceAttributes& client) {
  return Builder(graph, devices, moved, names, client).Run();
}

absl::StatusOr<std::vector<std::vector<std::string>>> FeedsBehindFetches(const Graph& graph,
                                                                         const MovedOutputs& moved,
                                                                         const StepNames& names) {
  absl::flat_hash_map<Output, std::string> feeds;
  for (const std::string& feed : names.feeds) {
    ASSIGN_OR_RETURN(const Output output, FindFeed(graph, moved, feed));
    feeds.emplace(output, feed);
  }
  std::vector<std::vector<std::string>> result;
  for (const std::string& fetch : names.fetches) {
    ASSIGN_OR_RETURN(const Output output, FindFetch(graph, fetch));
    absl::flat_hash_set<Output> seen_feeds;
    absl::flat_hash_set<const Node*> seen = {output.node};
    std::vector<const Node*> open = {output.node};
    std::vector<std::string>& behind = result.emplace_back();
    while (!open.empty()) {
      const Node* node = open.back();
      open.pop_back();
      const auto visit = [&](const Output& input) {
        const auto feed = feeds.find(input);
        if (feed == feeds.end()) {
          if (seen.insert(input.node).second) open.push_back(input.node);
        } else if (seen_feeds.insert(input).second) {
          behind.push_back(feed->second);
        }
      };
      for (const Output& input : node->inputs()) visit(input);
      for (Node* before : node->control_inputs()) visit(Output(before, 0));
    }
  }
  return result;
}

}  // namespace muster
