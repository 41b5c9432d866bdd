#include "muster/graph/partition.h"

#include "absl/container/flat_hash_map.h"

#include "muster/base/status.h"
#include "muster/graph/control_flow.h"

namespace muster {
namespace {

class Cutter {
 public:
  Cutter(const Graph& graph, absl::Span<const DeviceAttributes> devices)
      : graph_(graph),
        devices_(devices),
        parts_(devices.size()),
        copies_(graph.num_nodes(), nullptr) {}

  absl::StatusOr<std::vector<GraphPart>> Run() {
    RETURN_IF_ERROR(FindDevices());
    FindFrames();
    for (const auto& node : graph_.nodes()) RETURN_IF_ERROR(Copy(*node));
    RETURN_IF_ERROR(CloseLoops());
    for (const Crossing& crossing : crossings_) RETURN_IF_ERROR(AddSend(crossing));
    std::vector<GraphPart> result;
    for (size_t i = 0; i < parts_.size(); ++i) {
      if (parts_[i] != nullptr) result.push_back({devices_[i].name, std::move(parts_[i])});
    }
    return result;
  }

 private:
  // A value or, with output -1, the end of a node that goes to another device.
  struct Crossing {
    const Node* from;
    int output;
    std::string tensor_name;
    int source;
    int destination;
    int number;
  };

  absl::Status FindDevices() {
    absl::flat_hash_map<absl::string_view, int> by_name;
    for (size_t i = 0; i < devices_.size(); ++i) by_name[devices_[i].name] = static_cast<int>(i);
    for (const auto& node : graph_.nodes()) {
      const auto found = by_name.find(node->device());
      if (node->device().empty()) {
        return InvalidArgument("Node '", node->name(), "' is missing a device specification");
      }
      if (found == by_name.end()) return InvalidArgument(node->device(), " unknown device.");
      device_of_.push_back(found->second);
      if (parts_[found->second] == nullptr) {
        parts_[found->second] = std::make_unique<Graph>();
        parts_[found->second]->versions() = graph_.versions();
      }
    }
    return absl::OkStatus();
  }

  // The loop in which the outputs of each node are, by the Enter that leads there; null outside of
  // loops.
  void FindFrames() {
    std::vector<bool> seen(graph_.num_nodes(), false);
    std::vector<const Node*> inside(graph_.num_nodes(), nullptr);  // where the node itself runs
    frame_of_outputs_.assign(graph_.num_nodes(), nullptr);
    std::vector<std::vector<const Node*>> waiting(graph_.num_nodes());
    std::vector<const Node*> open;
    for (const auto& node : graph_.nodes()) {
      for (const Node* before : node->control_inputs()) waiting[before->id()].push_back(node.get());
      if (node->num_inputs() == 0 && node->control_inputs().empty()) {
        seen[node->id()] = true;
        open.push_back(node.get());
      }
    }
    while (!open.empty()) {
      const Node* node = open.back();
      open.pop_back();
      const Node* frame = inside[node->id()];
      // The frame around an Enter is the one in which it runs.
      if (IsLoopEnter(*node)) {
        frame = node;
      } else if (IsLoopExit(*node) && frame != nullptr) {
        frame = inside[frame->id()];
      }
      frame_of_outputs_[node->id()] = frame;
      const auto visit = [&](const Node* next) {
        if (seen[next->id()]) return;
        seen[next->id()] = true;
        inside[next->id()] = frame;
        open.push_back(next);
      };
      for (const Node::Consumer& reader : node->consumers()) visit(reader.node);
      for (const Node* next : waiting[node->id()]) visit(next);
    }
  }

  absl::Status CheckCrossing(const Node& from, const Node& to) const {
    const Node* frame = frame_of_outputs_[from.id()];
    if (frame == nullptr) return absl::OkStatus();
    return Unimplemented("The loop '", frame->Attr<std::string>("frame_name").value_or(""),
                         "' spans the devices ", from.device(), " and ", to.device(),
                         ": the edge from '", from.name(), "' to '", to.name(),
                         "' lies inside it. All nodes of a loop must be on one device.");
  }

  absl::Status Copy(const Node& node) {
    const int here = device_of_[node.id()];
    std::vector<Output> inputs;
    for (int i = 0; i < node.num_inputs(); ++i, ++edge_) {
      const Output& input = node.input(i);
      if (device_of_[input.node->id()] == here) {
        Node* copy = copies_[input.node->id()];
        inputs.push_back(copy == nullptr ? Output() : Output(copy, input.index));
        continue;
      }
      if (IsRef(node.input_types()[i])) {
        return InvalidArgument("Node '", node.name(), "' changes what '", input.node->name(),
                               "' refers to, but is on ", node.device(), " and not on ",
                               input.node->device());
      }
      ASSIGN_OR_RETURN(Node * received, Received(*input.node, input.index, node));
      inputs.push_back(Output(received, 0));
    }
    std::vector<Node*> control;
    for (const Node* before : node.control_inputs()) {
      const bool crosses = device_of_[before->id()] != here;
      if (crosses) {
        ASSIGN_OR_RETURN(Node * received, Received(*before, -1, node));
        control.push_back(received);
      } else if (Node* copy = copies_[before->id()]) {
        control.push_back(copy);
      } else {
        late_control_.emplace_back(&node, before);
      }
      ++edge_;
    }
    copies_[node.id()] =
        parts_[here]->AddCopy(node, node.name(), std::move(inputs), std::move(control));
    return absl::OkStatus();
  }

  // The node on `to`'s device that stands for an output of `from`, or for its end.
  absl::StatusOr<Node*> Received(const Node& from, int output, const Node& to) {
    const int destination = device_of_[to.id()];
    // A reference is read anew for every reader.
    const bool shared = output < 0 || !IsRef(from.output_types()[output]);
    const auto key = std::make_pair(std::make_pair(from.id(), output), destination);
    if (shared) {
      const auto found = received_.find(key);
      if (found != received_.end()) return found->second;
    }
    RETURN_IF_ERROR(CheckCrossing(from, to));
    Crossing crossing{&from,
                      output,
                      absl::StrCat("edge_", edge_, "_", from.name()),
                      device_of_[from.id()],
                      destination,
                      next_number_++};
    NodeSpec spec;
    spec.name = FreshName(destination, absl::StrCat(from.name(), "_S", next_number_++));
    spec.op = "_Recv";
    spec.attrs = TransferAttrs(crossing);
    spec.attrs["tensor_type"] = output < 0 ? DType::kFloat : BaseType(from.output_types()[output]);
    spec.device = devices_[destination].name;
    ASSIGN_OR_RETURN(Node * node, parts_[destination]->AddNode(std::move(spec)));
    if (output >= 0) {
      node->set_output_shape(0, from.output_shape(output));
      node->set_output_handle(0, from.output_handle(output));
    } else {
      NodeSpec identity;
      identity.name = FreshName(destination, absl::StrCat(from.name(), "_S", next_number_++));
      identity.op = "Identity";
      identity.inputs = {Output(node, 0)};
      identity.device = devices_[destination].name;
      ASSIGN_OR_RETURN(node, parts_[destination]->AddNode(std::move(identity)));
    }
    crossings_.push_back(std::move(crossing));
    if (shared) received_[key] = node;
    return node;
  }

  AttrMap TransferAttrs(const Crossing& crossing) const {
    return {
        {"tensor_name", crossing.tensor_name},
        {"send_device", devices_[crossing.source].name},
        {"send_device_incarnation", static_cast<int64_t>(devices_[crossing.source].incarnation)},
        {"recv_device", devices_[crossing.destination].name},
        {"client_terminated", false}};
  }

  absl::Status AddSend(const Crossing& crossing) {
    Graph& part = *parts_[crossing.source];
    Node* from = copies_[crossing.from->id()];
    Output value(from, crossing.output);
    if (crossing.output < 0) {
      NodeSpec nothing;
      nothing.name =
          FreshName(crossing.source, absl::StrCat(from->name(), "/ctrl_S", crossing.number));
      nothing.op = "Const";
      nothing.attrs = {{"dtype", DType::kFloat}, {"value", Tensor(DType::kFloat, Shape({0}))}};
      nothing.control_inputs = {from};
      nothing.device = from->device();
      ASSIGN_OR_RETURN(Node * node, part.AddNode(std::move(nothing)));
      value = Output(node, 0);
    }
    NodeSpec spec;
    spec.name = FreshName(crossing.source, absl::StrCat(from->name(), "_S", crossing.number));
    spec.op = "_Send";
    spec.inputs = {value};
    spec.attrs = TransferAttrs(crossing);
    spec.attrs["T"] = value.base_dtype();
    spec.device = from->device();
    return part.AddNode(std::move(spec)).status();
  }

  absl::Status CloseLoops() {
    for (const auto& node : graph_.nodes()) {
      Node& copy = *copies_[node->id()];
      for (int i = 0; i < node->num_inputs(); ++i) {
        if (copy.input(i)) continue;
        const Output& input = node->input(i);
        RETURN_IF_ERROR(
            copy.graph().UpdateInput(copy, i, Output(copies_[input.node->id()], input.index)));
      }
    }
    for (const auto& [node, before] : late_control_) {
      Node& copy = *copies_[node->id()];
      copy.graph().AddControlInput(copy, *copies_[before->id()]);
    }
    return absl::OkStatus();
  }

  // New nodes must not take the name of one that is still to be copied.
  std::string FreshName(int part, std::string name) const {
    while (graph_.FindNode(name) != nullptr || parts_[part]->FindNode(name) != nullptr) name += "_";
    return name;
  }

  const Graph& graph_;
  const absl::Span<const DeviceAttributes> devices_;
  std::vector<int> device_of_;
  std::vector<const Node*> frame_of_outputs_;
  std::vector<std::unique_ptr<Graph>> parts_;
  std::vector<Node*> copies_;
  absl::flat_hash_map<std::pair<std::pair<int, int>, int>, Node*> received_;
  std::vector<Crossing> crossings_;
  std::vector<std::pair<const Node*, const Node*>> late_control_;
  int64_t edge_ = 0;
  int next_number_ = 0;
};

}  // namespace

absl::StatusOr<std::vector<GraphPart>> PartitionGraph(const Graph& graph,
                                                      absl::Span<const DeviceAttributes> devices) {
  return Cutter(graph, devices).Run();
}

}  // namespace muster
