#include "muster/runtime/executor_plan.h"

#include <algorithm>
#include <map>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"

#include "muster/base/status.h"
#include "muster/device/device_name.h"
#include "muster/graph/control_flow/control_flow.h"
#include "muster/graph/place/partition.h"
#include "muster/graph/rewrite/variable_order.h"
#include "muster/runtime/aliased_reads.h"

namespace muster {
namespace {

NodeKind KindOf(const Node& node) {
  static const auto* kinds = new absl::flat_hash_map<absl::string_view, NodeKind>{
      {"Merge", NodeKind::kMerge},
      {"RefMerge", NodeKind::kMerge},
      {"Enter", NodeKind::kEnter},
      {"RefEnter", NodeKind::kEnter},
      {"Exit", NodeKind::kExit},
      {"RefExit", NodeKind::kExit},
      {"NextIteration", NodeKind::kNextIteration},
      {"RefNextIteration", NodeKind::kNextIteration},
      {"ControlTrigger", NodeKind::kControlTrigger},
      {"_Send", NodeKind::kTransfer},
      {"_Recv", NodeKind::kTransfer},
      {"_HostSend", NodeKind::kTransfer},
      {"_HostRecv", NodeKind::kTransfer}};
  const auto found = kinds->find(node.op());
  if (found == kinds->end()) return NodeKind::kPlain;
  if (found->second == NodeKind::kEnter && node.Attr<bool>("is_constant").value_or(false)) {
    return NodeKind::kConstantEnter;
  }
  return found->second;
}

bool IsEnter(NodeKind kind) {
  return kind == NodeKind::kEnter || kind == NodeKind::kConstantEnter;
}

bool CrossesTasks(const Node& node) {
  const std::string from = node.Attr<std::string>("send_device").value_or("");
  const std::string to = node.Attr<std::string>("recv_device").value_or("");
  return !node.Attr<bool>("client_terminated").value_or(false) && TaskOf(from) != TaskOf(to);
}
bool AsksAnotherTask(const Node& node) {
  return (node.op() == "_Recv" || node.op() == "_HostRecv") && CrossesTasks(node);
}
bool GivesToAnotherTask(const Node& node) {
  return (node.op() == "_Send" || node.op() == "_HostSend") && CrossesTasks(node);
}

// What a step or a function gives to its caller.
bool IsResult(const Node& node) {
  if (node.op() == "_Retval" || node.op() == "_DeviceRetval") return true;
  const AttrValue* const to_client = node.FindAttr("client_terminated");
  const bool* const flag = to_client == nullptr ? nullptr : to_client->get<bool>();
  return (node.op() == "_Send" || node.op() == "_HostSend") && flag != nullptr && *flag;
}

// By a reference or a handle, in its first input.
bool ChangesVariable(const Node& node) {
  if (node.num_inputs() == 0) return false;
  const DType first = node.input_types()[0];
  if (!IsRef(first) && first != DType::kResource) return false;
  static constexpr absl::string_view kPrefixes[] = {
      "Assign",        "Apply",          "Scatter",        "SparseApply",
      "ResourceApply", "ResourceSparse", "ResourceScatter"};
  return absl::c_any_of(
      kPrefixes, [&](absl::string_view prefix) { return absl::StartsWith(node.op(), prefix); });
}

class PlanMaker {
 public:
  PlanMaker(const Graph& graph, Device& device, const Executor::KernelSource& kernels)
      : graph_(graph), device_(device), kernels_(kernels), aliases_(graph) {}

  absl::StatusOr<ExecutorPlan> Make() {
    plan_.keeps_order = device_.stream() != nullptr;
    plan_.nodes.resize(graph_.num_nodes());
    for (int i = 0; i < graph_.num_nodes(); ++i) RETURN_IF_ERROR(MakeNode(i));
    FindConstants();
    MakeEdges();
    RETURN_IF_ERROR(AssignFrames());
    RETURN_IF_ERROR(CheckOrder());
    LayOutFrames();
    RETURN_IF_ERROR(PlaceConstants());
    OrderRoots();
    FindAwaited();
    if (plan_.keeps_order) OrderConstants();
    return std::move(plan_);
  }

 private:
  void FindAwaited() {
    if (!plan_.keeps_order) return;
    for (const int root : plan_.roots) {
      PlanNode& item = plan_.nodes[root];
      if (item.kind != NodeKind::kTransfer || !item.is_async ||
          !item.node->Attr<bool>(kEarlyAttr).value_or(false) ||
          item.node->Attr<bool>("client_terminated").value_or(false))
        continue;  // what a client feeds is there already
      item.is_awaited = true;
      ++plan_.num_awaited;
    }
  }

  void OrderRoots() {
    std::vector<bool> waits_for_others(plan_.nodes.size());
    std::vector<int> open;
    for (size_t i = 0; i < plan_.nodes.size(); ++i) {
      if (!AsksAnotherTask(*plan_.nodes[i].node)) continue;
      waits_for_others[i] = true;
      open.push_back(static_cast<int>(i));
    }
    while (!open.empty()) {
      const PlanNode& item = plan_.nodes[open.back()];
      open.pop_back();
      for (int e = item.first_edge; e < item.edge_end; ++e) {
        const int target = plan_.edges[e].target;
        if (waits_for_others[target]) continue;
        waits_for_others[target] = true;
        open.push_back(target);
      }
    }
    for (size_t i = 0; i < plan_.nodes.size(); ++i)
      if (GivesToAnotherTask(*plan_.nodes[i].node) && !waits_for_others[i]) return;
    const auto others =
        std::stable_partition(plan_.roots.begin(), plan_.roots.end(),
                              [&](int root) { return AsksAnotherTask(*plan_.nodes[root].node); });
    plan_.num_asking_roots = static_cast<int>(others - plan_.roots.begin());
  }
  // Nothing is to wait for a constant: the last roots run first.
  void OrderConstants() {
    std::stable_partition(plan_.roots.begin() + plan_.num_asking_roots, plan_.roots.end(),
                          [&](int root) { return plan_.nodes[root].node->op() != "Const"; });
  }

  absl::Status MakeNode(int i) {
    const Node& node = *graph_.nodes()[i];
    PlanNode& item = plan_.nodes[i];
    item.node = &node;
    ASSIGN_OR_RETURN(item.kernel, kernels_(node));
    item.output_types = node.output_types().data();
    if (device_.has_own_memory()) {
      ASSIGN_OR_RETURN(HostArgs host, HostArgsOf(node, device_.type()));
      item.host_outputs = std::make_unique<const std::vector<bool>>(std::move(host.outputs));
    }
    item.kind = KindOf(node);
    item.is_async = item.kernel->is_async();
    item.runs_last = plan_.keeps_order && ChangesVariable(node);
    item.allows_uninitialized = node.def().allows_uninitialized_input;
    item.num_inputs = node.num_inputs();
    item.num_outputs = node.num_outputs();
    for (const Output& input : node.inputs()) item.has_reference_inputs |= IsRef(input.dtype());
    if (aliases_.passes(node)) item.num_passed_inputs = NumPassedInputs(node);
    return absl::OkStatus();
  }

  // Not where there are loops: every iteration has inputs of its own.
  void FindConstants() {
    for (const PlanNode& item : plan_.nodes)
      if (IsEnter(item.kind)) return;
    for (PlanNode& item : plan_.nodes) {
      const Node& node = *item.node;
      if (node.op() != "Const" || !node.control_inputs().empty()) continue;
      if (item.host_outputs != nullptr && !item.host_outputs->front()) continue;
      const auto merges = [&](const Node::Consumer& consumer) {
        return plan_.nodes[consumer.node->id()].kind == NodeKind::kMerge;
      };
      if (std::none_of(node.consumers().begin(), node.consumers().end(), merges))
        item.kind = NodeKind::kConstant;
    }
  }
  bool IsConstant(const Node& node) const {
    return plan_.nodes[node.id()].kind == NodeKind::kConstant;
  }

  // The edges of constants are not waited for.
  void MakeEdges() {
    std::vector<std::vector<PlanEdge>> out(graph_.num_nodes());
    std::vector<uint64_t> waits(graph_.num_nodes(), 0);
    for (const auto& node : graph_.nodes()) {
      for (int i = 0; i < node->num_inputs(); ++i) {
        if (IsConstant(*node->input(i).node)) {
          plan_.nodes[node->id()].has_constant_inputs = true;
          continue;
        }
        ++waits[node->id()];
        const Output source = node->input(i);
        PlanNode& from = plan_.nodes[source.node->id()];
        PlanEdge edge{node->id(), i, source.index, PlanEdge::Carries::kValue};
        if (from.num_passed_inputs > 0) {
          plan_.nodes[node->id()].has_reference_inputs = true;
          if (aliases_.reads_again(*node, i))
            edge.carries = PlanEdge::Carries::kReference;
          else
            from.passes_values = true;
        }
        out[source.node->id()].push_back(edge);
      }
      for (const Node* before : node->control_inputs()) {
        if (IsConstant(*before)) continue;
        out[before->id()].push_back({node->id(), -1, 0, PlanEdge::Carries::kValue});
        ++waits[node->id()];
      }
    }
    if (plan_.keeps_order) OrderVariableNodes(out, waits);
    for (auto& edges : out) {
      absl::flat_hash_set<int> used;
      for (auto edge = edges.rbegin(); edge != edges.rend(); ++edge) {
        if (edge->input >= 0 && used.insert(edge->output).second &&
            edge->carries == PlanEdge::Carries::kValue)
          edge->carries = PlanEdge::Carries::kLastValue;
      }
    }
    for (int i = 0; i < graph_.num_nodes(); ++i) {
      plan_.nodes[i].first_edge = static_cast<int>(plan_.edges.size());
      plan_.edges.insert(plan_.edges.end(), out[i].begin(), out[i].end());
      plan_.nodes[i].edge_end = static_cast<int>(plan_.edges.size());
      plan_.nodes[i].first_target = out[i].empty() ? i : out[i].front().target;
      const uint64_t values = graph_.nodes()[i]->num_inputs();
      const bool is_merge = plan_.nodes[i].kind == NodeKind::kMerge;
      plan_.nodes[i].initial_count = is_merge ? 1 + 2 * (waits[i] - values) : waits[i];
      if (waits[i] == 0 && plan_.nodes[i].kind != NodeKind::kConstant) plan_.roots.push_back(i);
    }
  }

  void OrderVariableNodes(std::vector<std::vector<PlanEdge>>& out, std::vector<uint64_t>& waits) {
    std::vector<bool> is_constant, changes;
    for (const PlanNode& item : plan_.nodes) {
      is_constant.push_back(item.node->op() == "Const" && item.node->control_inputs().empty());
      changes.push_back(item.runs_last);
    }
    const VariableOrder order = OrderVariables(graph_, is_constant, changes);
    for (const auto& [node, waiting] : order.edges) {
      out[node].push_back({waiting, -1, 0, PlanEdge::Carries::kValue});
      ++waits[waiting];
    }
    for (const int node : order.changes) plan_.nodes[node].runs_last = false;
  }

  // The frame in which the outputs of a node live.
  int OutputFrame(const PlanNode& item) const {
    if (IsEnter(item.kind)) return item.child_frame;
    if (item.kind == NodeKind::kExit) return plan_.frames[item.frame].parent;
    return item.frame;
  }

  absl::Status AssignFrames() {
    plan_.frames.emplace_back();
    std::map<std::pair<int, std::string>, int> by_name;
    std::vector<int> open = plan_.roots;
    std::vector<bool> seen(plan_.nodes.size(), false);
    for (int root : open) seen[root] = true;
    while (!open.empty()) {
      const int at = open.back();
      open.pop_back();
      PlanNode& item = plan_.nodes[at];
      if (IsEnter(item.kind)) RETURN_IF_ERROR(EnterFrame(item, by_name));
      RETURN_IF_ERROR(CheckLoopNode(item));
      const int frame = OutputFrame(item);
      for (int e = item.first_edge; e < item.edge_end; ++e) {
        PlanNode& target = plan_.nodes[plan_.edges[e].target];
        if (!seen[plan_.edges[e].target]) {
          seen[plan_.edges[e].target] = true;
          target.frame = frame;
          open.push_back(plan_.edges[e].target);
        } else if (target.frame != frame) {
          return InvalidArgument(
              "The node '", target.node->name(), "' has inputs from different frames. The input '",
              item.node->name(), "' is in frame '", plan_.frames[frame].name, "'.");
        }
      }
    }
    for (size_t i = 0; i < seen.size(); ++i) {
      if (!seen[i] && plan_.nodes[i].kind != NodeKind::kConstant) {
        return InvalidArgument("Node '", plan_.nodes[i].node->name(),
                               "' can never run: it waits for itself");
      }
    }
    return CheckLoopsEnd();
  }

  absl::Status CheckLoopNode(const PlanNode& item) const {
    if (item.frame == 0) {
      if (item.kind != NodeKind::kExit && item.kind != NodeKind::kNextIteration)
        return absl::OkStatus();
      return InvalidArgument("Node '", item.node->name(), "' ",
                             item.kind == NodeKind::kExit ? "leaves" : "goes on with",
                             " a loop that was never entered");
    }
    // It may be produced in no iteration or in several, and no receiver waits for it there.
    if (!IsResult(*item.node)) return absl::OkStatus();
    return InvalidArgument("Tensor '", item.node->input(0).name(),
                           "' cannot be fetched: it is inside of the loop '",
                           plan_.frames[item.frame].name, "', which only an Exit leaves");
  }

  // A loop ends when a Switch, here or where a tensor comes from, lets nothing pass to its
  // NextIteration.
  absl::Status CheckLoopsEnd() const {
    std::vector<bool> may_end(plan_.frames.size(), false);
    for (const PlanNode& item : plan_.nodes)
      may_end[item.frame] = may_end[item.frame] || IsSwitch(*item.node) ||
                            item.node->op() == "_SwitchN" || item.kind == NodeKind::kTransfer;
    for (const PlanNode& item : plan_.nodes) {
      if (item.kind != NodeKind::kNextIteration || may_end[item.frame]) continue;
      for (int e = item.first_edge; e < item.edge_end; ++e) {
        if (plan_.nodes[plan_.edges[e].target].kind != NodeKind::kMerge) continue;
        return InvalidArgument("The loop '", plan_.frames[item.frame].name,
                               "' can never end: no Switch is between its Merge '",
                               plan_.nodes[plan_.edges[e].target].node->name(),
                               "' and its NextIteration '", item.node->name(), "'");
      }
    }
    return absl::OkStatus();
  }

  absl::Status EnterFrame(PlanNode& item, std::map<std::pair<int, std::string>, int>& by_name) {
    ASSIGN_OR_RETURN(std::string name, item.node->Attr<std::string>("frame_name"));
    if (name.empty())
      return InvalidArgument("The Enter {{node ", item.node->name(), "}} must have a frame name.");
    ASSIGN_OR_RETURN(int64_t parallel, item.node->Attr<int64_t>("parallel_iterations"));
    if (parallel < 1)
      return InvalidArgument("parallel_iterations of '", item.node->name(), "' is ", parallel,
                             ", not positive");
    const auto [found, added] =
        by_name.try_emplace({item.frame, name}, static_cast<int>(plan_.frames.size()));
    if (added) {
      PlanFrame frame;
      frame.name = name;
      frame.parent = item.frame;
      frame.parallel_iterations = static_cast<int>(std::min<int64_t>(parallel, 1 << 16));
      plan_.frames.push_back(std::move(frame));
    }
    item.child_frame = found->second;
    ++plan_.frames[found->second].enters;
    return absl::OkStatus();
  }

  // Without the edges of NextIteration there must be no cycle, or the step would wait for itself
  // for ever.
  absl::Status CheckOrder() const {
    std::vector<int> waiting(plan_.nodes.size(), 0);
    for (const PlanNode& item : plan_.nodes) {
      if (item.kind == NodeKind::kNextIteration) continue;
      for (int e = item.first_edge; e < item.edge_end; ++e) ++waiting[plan_.edges[e].target];
    }
    std::vector<int> open;
    for (size_t i = 0; i < waiting.size(); ++i) {
      if (waiting[i] == 0) open.push_back(static_cast<int>(i));
    }
    size_t visited = 0;
    while (!open.empty()) {
      const PlanNode& item = plan_.nodes[open.back()];
      open.pop_back();
      ++visited;
      if (item.kind == NodeKind::kNextIteration) continue;
      for (int e = item.first_edge; e < item.edge_end; ++e) {
        if (--waiting[plan_.edges[e].target] == 0) open.push_back(plan_.edges[e].target);
      }
    }
    if (visited == plan_.nodes.size()) return absl::OkStatus();
    for (size_t i = 0; i < waiting.size(); ++i) {
      if (waiting[i] > 0) {
        return InvalidArgument("Graph is invalid, contains a cycle through node '",
                               plan_.nodes[i].node->name(), "'");
      }
    }
    return absl::OkStatus();
  }

  void LayOutFrames() {
    for (PlanNode& item : plan_.nodes) {
      PlanFrame& frame = plan_.frames[item.frame];
      item.index_in_frame = frame.num_nodes++;
      item.first_input = frame.num_inputs;
      frame.num_inputs += item.num_inputs;
      frame.initial_counts.push_back(item.initial_count);
    }
  }

  absl::Status PlaceConstants() {
    for (const PlanNode& item : plan_.nodes) {
      if (!item.has_constant_inputs) continue;
      plan_.constants.resize(plan_.frames[0].num_inputs);
      for (int i = 0; i < item.num_inputs; ++i) {
        const Node& source = *item.node->input(i).node;
        if (!IsConstant(source)) continue;
        ASSIGN_OR_RETURN(plan_.constants[item.first_input + i], source.Attr<Tensor>("value"));
      }
    }
    return absl::OkStatus();
  }

  const Graph& graph_;
  Device& device_;
  const Executor::KernelSource& kernels_;
  const AliasedReads aliases_;
  ExecutorPlan plan_;
};

}  // namespace

PlanNode& PlanNode::operator=(PlanNode&& other) noexcept {
  node = other.node;
  kernel = std::move(other.kernel);
  output_types = other.output_types;
  host_outputs = std::move(other.host_outputs);
  kind = other.kind;
  is_async = other.is_async;
  runs_last = other.runs_last;
  is_awaited = other.is_awaited;
  allows_uninitialized = other.allows_uninitialized;
  has_reference_inputs = other.has_reference_inputs;
  has_constant_inputs = other.has_constant_inputs;
  passes_values = other.passes_values;
  num_passed_inputs = other.num_passed_inputs;
  num_inputs = other.num_inputs;
  num_outputs = other.num_outputs;
  frame = other.frame;
  child_frame = other.child_frame;
  index_in_frame = other.index_in_frame;
  first_input = other.first_input;
  initial_count = other.initial_count;
  first_edge = other.first_edge;
  edge_end = other.edge_end;
  first_target = other.first_target;
  cost_nanos.store(other.cost_nanos.load(std::memory_order_relaxed), std::memory_order_relaxed);
  return *this;
}

absl::StatusOr<ExecutorPlan> ExecutorPlan::Make(const Graph& graph, Device& device,
                                                const Executor::KernelSource& kernels) {
  return PlanMaker(graph, device, kernels).Make();
}

}  // namespace muster
