#include "muster/master/step_graph.h"

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_format.h"

#include "muster/base/status.h"
#include "muster/device/device_name.h"
#include "muster/graph/infer.h"
#include "muster/graph/proto/function_proto.h"
#include "muster/graph/proto/graph_proto.h"
#include "muster/graph/rewrite/fetch_order.h"
#include "muster/graph/rewrite/step_copy.h"
#include "muster/transport/api/cluster.h"

namespace muster {
namespace {

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
        step_(graph) {}

  absl::StatusOr<std::unique_ptr<Graph>> Run() {
    RETURN_IF_ERROR(Check());
    RETURN_IF_ERROR(Find());
    step_.Need(fetches_, targets_);
    CopyFunctions(graph_, step_.copy());
    RETURN_IF_ERROR(AddFeeds());
    RETURN_IF_ERROR(step_.CopyNodes(
        [this](const Node& original, Node& copy) { return Place(original, copy); }));
    RETURN_IF_ERROR(AddConnections());
    RETURN_IF_ERROR(step_.CloseGaps());
    RETURN_IF_ERROR(AddFetches());
    return step_.Take();
  }

 private:
  static absl::Status FedTwice(absl::string_view endpoint) {
    return InvalidArgument("Endpoint \"", endpoint, "\" fed more than once.");
  }

  absl::Status Check() const {
    if (names_.fetches.empty() && names_.targets.empty()) {
      return InvalidArgument("Must specify at least one target to fetch or execute.");
    }
    absl::flat_hash_set<std::string> given;
    for (const std::string& feed : names_.feeds) {
      if (!given.insert(feed).second) return FedTwice(feed);
    }
    for (const auto& [from, to] : names_.connections) {
      if (!given.insert(to).second) return FedTwice(to);
    }
    for (const std::string& fetch : names_.fetches) {
      if (given.contains(fetch)) return InvalidArgument(fetch, " is both fed and fetched.");
    }
    return absl::OkStatus();
  }

  absl::Status Find() {
    for (const std::string& feed : names_.feeds) {
      ASSIGN_OR_RETURN(feeds_.emplace_back(), FindFeed(graph_, moved_, feed));
      if (!step_.Replace(feeds_.back())) return FedTwice(feed);
    }
    for (const auto& [from, to] : names_.connections) {
      ASSIGN_OR_RETURN(const Output source, FindFetch(graph_, from));
      ASSIGN_OR_RETURN(const Output replaced, FindFeed(graph_, moved_, to));
      if (source.base_dtype() != replaced.base_dtype()) {
        return InvalidArgument("Tensor ", from, " of type ", DTypeName(source.base_dtype()),
                               " cannot be connected to ", to, " of type ",
                               DTypeName(replaced.base_dtype()));
      }
      if (!step_.Connect(replaced, source)) return FedTwice(to);
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

  AttrMap ClientAttrs(const std::string& tensor) const {
    return {{"tensor_name", tensor},
            {"send_device", client_.name},
            {"send_device_incarnation", static_cast<int64_t>(client_.incarnation)},
            {"recv_device", client_.name},
            {"client_terminated", true}};
  }

  std::string FreshName(absl::string_view prefix, const Output& output) const {
    return step_.FreshName(absl::StrCat(prefix, output.node->name(), "_", output.index));
  }

  absl::Status AddFeeds() {
    for (size_t i = 0; i < feeds_.size(); ++i) {
      if (!step_.IsRead(feeds_[i])) continue;
      NodeSpec spec;
      spec.name = FreshName("_recv_", feeds_[i]);
      spec.op = "_Recv";
      spec.attrs = ClientAttrs(names_.feeds[i]);
      spec.attrs.emplace("tensor_type", feeds_[i].base_dtype());
      spec.device = client_.name;
      ASSIGN_OR_RETURN(Node * node, step_.copy().AddNode(std::move(spec)));
      // Its shape stays unknown: callables may feed another one than the graph says.
      step_.SetStandIn(feeds_[i], Output(node, 0));
    }
    return absl::OkStatus();
  }

  // Inferred shapes may not hold for fed values.
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

  absl::Status Place(const Node& original, Node& copy) const {
    RETURN_IF_ERROR(KeptShapeError(original));
    if (original.id() >= static_cast<int>(devices_.size()) || devices_[original.id()].empty()) {
      return absl::UnavailableError(
          absl::StrCat("Node '", original.name(), "' is being added and not placed yet"));
    }
    copy.set_device(devices_[original.id()]);
    InferAgain(original, copy);
    return absl::OkStatus();
  }

  absl::Status AddConnections() {
    for (const auto& [from, to] : names_.connections) {
      ASSIGN_OR_RETURN(const Output replaced, FindFeed(graph_, moved_, to));
      if (!step_.IsRead(replaced)) continue;
      ASSIGN_OR_RETURN(const Output original, FindFetch(graph_, from));
      const Output source = step_.Mapped(original);
      if (!source) {
        return InvalidArgument("Tensor ", from, ", connected to ", to,
                               ", is itself replaced by another connection");
      }
      NodeSpec spec;
      spec.name = FreshName("_identity_", replaced);
      spec.op = "Identity";
      spec.inputs = {source};
      spec.device = devices_[replaced.node->id()];
      ASSIGN_OR_RETURN(Node * node, step_.copy().AddNode(std::move(spec)));
      step_.SetStandIn(replaced, Output(node, 0));
    }
    return absl::OkStatus();
  }

  // A variable of the client's task is read at the end of the step; one of another task is on its
  // way by then, in TensorFlow too.
  bool IsReadAtTheEnd(const Node& fetch) {
    const Node* variable = FetchedVariable(fetch, step_.copy());
    return variable != nullptr && TaskOf(variable->device()) == TaskOf(client_.name);
  }

  absl::Status AddFetches() {
    std::vector<Node*> last;
    for (size_t i = 0; i < fetches_.size(); ++i) {
      NodeSpec spec;
      spec.name = FreshName("_send_", fetches_[i]);
      spec.op = "_Send";
      spec.inputs = {step_.Mapped(fetches_[i])};
      spec.attrs = ClientAttrs(names_.fetches[i]);
      spec.attrs.emplace("T", fetches_[i].base_dtype());
      spec.device = client_.name;
      ASSIGN_OR_RETURN(Node * fetch, step_.copy().AddNode(std::move(spec)));
      if (IsReadAtTheEnd(*fetch)) last.push_back(fetch);
    }
    // Fetches of a partial run must not wait for feeds of a later part.
    if (!names_.is_partial) FetchAfterUpdates(step_.copy(), last);
    return absl::OkStatus();
  }

  const Graph& graph_;
  const absl::Span<const std::string> devices_;
  const MovedOutputs& moved_;
  const StepNames& names_;
  const DeviceAttributes& client_;
  StepCopy step_;
  std::vector<Output> feeds_;
  std::vector<Output> fetches_;
  std::vector<Node*> targets_;
};

}  // namespace

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

absl::StatusOr<StepEnds> FindEnds(const Graph& graph, const MovedOutputs& moved,
                                  const StepNames& names) {
  StepEnds ends;
  for (const std::string& feed : names.feeds) {
    ASSIGN_OR_RETURN(ends.feeds.emplace_back(), FindFeed(graph, moved, feed));
  }
  for (const std::string& fetch : names.fetches) {
    ASSIGN_OR_RETURN(ends.fetches.emplace_back(), FindFetch(graph, fetch));
  }
  return ends;
}

}  // namespace muster
