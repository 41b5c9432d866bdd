#include "muster/graph/place/partition.h"

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"

#include "muster/base/status.h"
#include "muster/device/device_name.h"
#include "muster/graph/control_flow/control_flow.h"
#include "muster/graph/control_flow/frames.h"
#include "muster/graph/place/before_parts.h"
#include "muster/graph/place/control_loops.h"
#include "muster/graph/rewrite/rewriter.h"

namespace muster {

namespace {

bool IsTransfer(const Node& node) {
  const std::string& op = node.op();
  return op == "_Send" || op == "_Recv" || op == "_HostSend" || op == "_HostRecv";
}

// Constants up to this size are copied into the reader's part instead of being sent.
constexpr size_t kMaxCopiedBytes = 1 << 10;

bool MayCopy(const Node& node) {
  const Tensor* value = ConstValue(node);
  return value != nullptr && node.control_inputs().empty() && value->dtype() != DType::kString &&
         value->size_bytes() <= kMaxCopiedBytes;
}

class Names {
 public:
  explicit Names(const PartitionOptions& options)
      : mark_(options.by == PartitionOptions::By::kTask ? "_S" : "_G"), counter_(options.counter) {}
  std::string Next(absl::string_view name) {
    return absl::StrCat(name, mark_, counter_ == nullptr ? own_++ : (*counter_)++);
  }

 private:
  const char* const mark_;
  int64_t* const counter_;
  int64_t own_ = 0;
};

class Cutter {
 public:
  Cutter(const Graph& graph, absl::Span<const DeviceAttributes> devices,
         const PartitionOptions& options, Names& names)
      : graph_(graph),
        devices_(devices),
        options_(options),
        names_(names),
        copies_(graph.num_nodes(), nullptr) {}

  absl::StatusOr<std::vector<GraphPart>> Run() {
    RETURN_IF_ERROR(FindDevices());
    FindControlLoops();
    FindSent();
    FindBefore();
    for (const auto& node : graph_.nodes()) RETURN_IF_ERROR(Copy(*node));
    RETURN_IF_ERROR(CloseLoops());
    for (const Crossing& crossing : crossings_) RETURN_IF_ERROR(AddSend(crossing));
    std::vector<GraphPart> result;
    for (GraphPart& part : parts_) {
      if (part.graph != nullptr) result.push_back(std::move(part));
    }
    return result;
  }

 private:
  // A value that crosses to another part or, with output -1, the completion of a node.
  struct Crossing {
    const Node* from;
    int output;
    std::string tensor_name;
    int source;  // devices
    int destination;
    DType dtype;  // that travels
    std::string send_name = {};
    std::string extra_name = {};  // of the empty constant or the cast before it
  };

  Graph& PartOf(int device) { return *parts_[part_of_[device]].graph; }

  absl::Status FindDevices() {
    absl::flat_hash_map<absl::string_view, int> by_name;
    absl::flat_hash_map<absl::string_view, int> by_task;
    for (size_t i = 0; i < devices_.size(); ++i) {
      const absl::string_view name = devices_[i].name;
      by_name[name] = static_cast<int>(i);
      const bool by_device = options_.by == PartitionOptions::By::kDevice;
      const auto [found, added] =
          by_task.try_emplace(by_device ? name : TaskOf(name), static_cast<int>(parts_.size()));
      part_of_.push_back(found->second);
      if (!added) continue;
      parts_.push_back(
          {by_device ? devices_[i].name : std::string(), std::string(TaskOf(name)), nullptr});
    }
    for (const auto& node : graph_.nodes()) {
      const auto found = by_name.find(node->device());
      if (node->device().empty()) {
        return InvalidArgument("Node '", node->name(), "' is missing a device specification");
      }
      if (found == by_name.end()) return InvalidArgument(node->device(), " unknown device.");
      device_of_.push_back(found->second);
      std::unique_ptr<Graph>& part = parts_[part_of_[found->second]].graph;
      if (part == nullptr) {
        part = std::make_unique<Graph>();
        part->versions() = graph_.versions();
      }
    }
    return absl::OkStatus();
  }

  void FindControlLoops() {
    frames_ = FindFrames(graph_);
    for (const auto& node : graph_.nodes()) {
      if (IsControlLoopMerge(*node)) {
        control_loops_[{frames_.inside[node->id()], device_of_[node->id()]}] = node.get();
      }
    }
  }

  // For each node, an output that another part reads: it also serves nodes there that wait for its
  // completion.
  void FindSent() {
    for (const auto& node : graph_.nodes()) {
      for (const Output& input : node->inputs()) {
        if (!Crosses(*input.node, *node) || IsRef(input.dtype())) continue;
        if (IsControlFlow(*input.node) || frames_.outputs[input.node->id()] != 0) continue;
        sent_.try_emplace({input.node->id(), PartIndex(*node)}, input.index);
      }
    }
  }

  // Which parts come before which nodes, as far as devices ask for it.
  void FindBefore() {
    std::vector<int> part_of_node(static_cast<size_t>(graph_.num_nodes()));
    std::vector<bool> asks(parts_.size());
    for (const auto& node : graph_.nodes()) {
      part_of_node[node->id()] = PartIndex(*node);
      if (MayWaitForAll(device_of_[node->id()])) asks[PartIndex(*node)] = true;
    }
    feeds_come_first_ = options_.by == PartitionOptions::By::kTask && !options_.is_partial &&
                        absl::c_linear_search(asks, true);
    before_ = BeforeParts::Find(graph_, part_of_node, asks, feeds_come_first_);
  }
  bool MayWaitForAll(int device) const { return devices_[device].device_type != "CPU"; }

  int PartIndex(const Node& node) const { return part_of_[device_of_[node.id()]]; }
  bool Crosses(const Node& from, const Node& to) const { return PartIndex(from) != PartIndex(to); }

  absl::Status Copy(const Node& node) {
    Graph& part = PartOf(device_of_[node.id()]);
    std::vector<Output> inputs;
    std::vector<Node*> control;
    std::vector<Node*> reads;  // _Recv of references
    for (int i = 0; i < node.num_inputs(); ++i, ++edge_) {
      const Output& input = node.input(i);
      if (!Crosses(*input.node, node)) {
        Node* copy = copies_[input.node->id()];
        inputs.push_back(copy == nullptr ? Output() : Output(copy, input.index));
        continue;
      }
      if (IsRef(node.input_types()[i])) {
        return InvalidArgument("Node '", node.name(), "' changes what '", input.node->name(),
                               "' refers to, but is on ", node.device(), " and not on ",
                               input.node->device());
      }
      ASSIGN_OR_RETURN(const Received received, Receive(*input.node, input.index, node));
      inputs.push_back(Output(received.value, 0));
      if (IsRef(input.dtype())) reads.push_back(received.recv);
    }
    std::vector<const Node*> late;
    for (const Node* before : node.control_inputs()) {
      if (Crosses(*before, node)) {
        const auto sent = sent_.find({before->id(), PartIndex(node)});
        const int output = sent == sent_.end() ? -1 : sent->second;
        ASSIGN_OR_RETURN(const Received received, Receive(*before, output, node));
        control.push_back(received.value);
      } else if (Node* copy = copies_[before->id()]) {
        control.push_back(copy);
      } else {
        late.push_back(before);
      }
      ++edge_;
    }
    Node* copy = part.AddCopy(node, node.name(), std::move(inputs), control);
    for (const Node* before : late) late_control_.emplace_back(copy, before);
    if (IsTransfer(node)) FillIncarnation(*copy);
    if (feeds_come_first_ && node.op() == "_Recv" &&
        node.Attr<bool>("client_terminated").value_or(false))
      copy->SetAttr(kEarlyAttr, true);
    copies_[node.id()] = copy;
    for (Node* read : reads) OrderRead(node, *copy, *read);
    return absl::OkStatus();
  }

  // The node would have read the reference last of all its inputs, so it is requested only when
  // they have arrived.
  void OrderRead(const Node& node, const Node& copy, Node& read) {
    if (IsMerge(node)) return;  // takes the first input that arrives
    Graph& part = read.graph();
    for (int i = 0; i < node.num_inputs(); ++i) {
      if (IsRef(node.input(i).dtype())) continue;
      if (copy.input(i)) {
        part.AddControlInput(read, *copy.input(i).node);
      } else {
        late_control_.emplace_back(&read, node.input(i).node);
      }
    }
    for (Node* before : copy.control_inputs()) part.AddControlInput(read, *before);
  }

  struct Received {
    Node* recv;
    Node* value;  // what readers read or wait for
  };

  // What stands for an output of `from`, or for its completion, in the part of `to`.
  absl::StatusOr<Received> Receive(const Node& from, int output, const Node& to) {
    const int destination = device_of_[to.id()];
    // A reference is read again for every reader.
    const bool shared = output < 0 || !IsRef(from.output_types()[output]);
    const auto key = std::make_pair(std::make_pair(from.id(), output), part_of_[destination]);
    if (shared) {
      const auto found = received_.find(key);
      if (found != received_.end()) return found->second;
    }
    if (MayCopy(from)) {
      Node* copy = PartOf(destination).AddCopy(from, FreshName(from.name()), {}, {});
      copy->set_device(devices_[destination].name);
      return received_[key] = Received{copy, copy};
    }
    const DType dtype = output < 0 ? DType::kFloat : BaseType(from.output_types()[output]);
    const bool cast = options_.bfloat16 && output >= 0 && dtype == DType::kFloat;
    Crossing crossing{.from = &from,
                      .output = output,
                      .tensor_name = absl::StrCat("edge_", edge_, "_", from.name()),
                      .source = device_of_[from.id()],
                      .destination = destination,
                      .dtype = cast ? DType::kBfloat16 : dtype};
    if (output < 0) crossing.extra_name = FreshName(absl::StrCat(from.name(), "/ctrl"));
    if (cast) crossing.extra_name = FreshName(from.name());
    crossing.send_name = FreshName(from.name());
    Graph& part = PartOf(destination);
    NodeSpec spec;
    spec.name = FreshName(from.name());
    spec.op = "_Recv";
    spec.attrs = TransferAttrs(crossing);
    spec.attrs["tensor_type"] = crossing.dtype;
    spec.device = devices_[destination].name;
    if (MayWaitForAll(destination) && frames_.outputs[from.id()] == 0 &&
        before_.IsEarly(from.id(), part_of_[destination]))
      spec.attrs[kEarlyAttr] = true;
    ASSIGN_OR_RETURN(Node * recv, part.AddNode(std::move(spec)));
    Received received{recv, recv};
    if (output < 0) {
      ASSIGN_OR_RETURN(received.value, AddAfter(*recv, from, "Identity", {}));
    } else {
      recv->set_output_shape(0, from.output_shape(output));
      recv->set_output_handle(0, from.output_handle(output));
      if (cast) {
        ASSIGN_OR_RETURN(received.value, AddAfter(*recv, from, "Cast", {{"DstT", dtype}}));
      }
    }
    RETURN_IF_ERROR(StartInLoop(*recv, from, to));
    crossings_.push_back(std::move(crossing));
    if (shared) received_[key] = received;
    return received;
  }

  absl::StatusOr<Node*> AddAfter(Node& recv, const Node& from, absl::string_view op,
                                 AttrMap attrs) {
    NodeSpec spec;
    spec.name = FreshName(from.name());
    spec.op = std::string(op);
    spec.inputs = {Output(&recv, 0)};
    spec.attrs = std::move(attrs);
    spec.device = recv.device();
    return recv.graph().AddNode(std::move(spec));
  }

  // Inside a loop, a value is received once in every iteration.
  absl::Status StartInLoop(Node& recv, const Node& from, const Node& to) {
    const int frame = frames_.outputs[from.id()];
    if (frame == 0) return absl::OkStatus();
    const auto loop = control_loops_.find(std::make_pair(frame, device_of_[to.id()]));
    if (loop == control_loops_.end()) {
      return InvalidArgument("The loop '", frames_.frames[frame].name, "' has no control loop on ",
                             to.device(), ", where '", to.name(), "' reads '", from.name(), "' of ",
                             from.device());
    }
    late_control_.emplace_back(&recv, loop->second);
    return absl::OkStatus();
  }

  AttrMap TransferAttrs(const Crossing& crossing) const {
    return {
        {"tensor_name", crossing.tensor_name},
        {"send_device", devices_[crossing.source].name},
        {"send_device_incarnation", static_cast<int64_t>(devices_[crossing.source].incarnation)},
        {"recv_device", devices_[crossing.destination].name},
        {"client_terminated", false}};
  }

  // For a pair that a master made without knowing the incarnation of this process.
  void FillIncarnation(Node& node) const {
    if (node.Attr<bool>("client_terminated").value_or(false)) return;
    if (node.Attr<int64_t>("send_device_incarnation").value_or(0) != 0) return;
    const std::string sender = node.Attr<std::string>("send_device").value_or("");
    for (const DeviceAttributes& device : devices_) {
      if (device.name != sender) continue;
      node.SetAttr("send_device_incarnation", static_cast<int64_t>(device.incarnation));
    }
  }

  absl::Status AddSend(const Crossing& crossing) {
    Graph& part = PartOf(crossing.source);
    Node* from = copies_[crossing.from->id()];
    Output value(from, crossing.output);
    if (!crossing.extra_name.empty()) {
      NodeSpec extra;
      extra.name = crossing.extra_name;
      extra.device = from->device();
      if (crossing.output < 0) {
        extra.op = "Const";
        extra.attrs = {{"dtype", DType::kFloat}, {"value", Tensor(DType::kFloat, Shape({0}))}};
        extra.control_inputs = {from};
      } else {
        extra.op = "Cast";
        extra.inputs = {value};
        extra.attrs = {{"DstT", crossing.dtype}, {"Truncate", true}};
      }
      ASSIGN_OR_RETURN(Node * node, part.AddNode(std::move(extra)));
      value = Output(node, 0);
    }
    NodeSpec spec;
    spec.name = crossing.send_name;
    spec.op = "_Send";
    spec.inputs = {value};
    spec.attrs = TransferAttrs(crossing);
    spec.attrs["T"] = crossing.dtype;
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
    for (const auto& [node, before] : late_control_)
      node->graph().AddControlInput(*node, *copies_[before->id()]);
    return absl::OkStatus();
  }

  // New nodes must not take the name of one that is still to be copied. Numbers are never used
  // twice, so they cannot meet each other.
  std::string FreshName(absl::string_view base) {
    std::string name = names_.Next(base);
    while (graph_.FindNode(name) != nullptr) name = names_.Next(base);
    return name;
  }

  const Graph& graph_;
  const absl::Span<const DeviceAttributes> devices_;
  const PartitionOptions& options_;
  Names& names_;
  std::vector<int> device_of_;  // by node id
  std::vector<int> part_of_;    // by device
  std::vector<GraphPart> parts_;
  Frames frames_;
  absl::flat_hash_map<std::pair<int, int>, const Node*> control_loops_;  // by frame and device
  // By node and part: an output that goes there.
  absl::flat_hash_map<std::pair<int, int>, int> sent_;
  BeforeParts before_;
  bool feeds_come_first_ = false;
  std::vector<Node*> copies_;
  absl::flat_hash_map<std::pair<std::pair<int, int>, int>, Received> received_;
  std::vector<Crossing> crossings_;
  std::vector<std::pair<Node*, const Node*>> late_control_;  // a copy and an original
  int64_t edge_ = 0;
};

}  // namespace

absl::StatusOr<std::vector<GraphPart>> PartitionGraph(const Graph& graph,
                                                      absl::Span<const DeviceAttributes> devices,
                                                      const PartitionOptions& options) {
  Names names(options);
  std::unique_ptr<Graph> prepared;
  if (!options.is_prepared) {
    ASSIGN_OR_RETURN(prepared, PrepareCut(graph, [&](absl::string_view name) {
                       std::string fresh = names.Next(name);
                       while (graph.FindNode(fresh) != nullptr) fresh = names.Next(name);
                       return fresh;
                     }));
  }
  return Cutter(prepared == nullptr ? graph : *prepared, devices, options, names).Run();
}

}  // namespace muster
