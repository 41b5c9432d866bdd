#include "muster/graph/place.h"

#include <numeric>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_join.h"

#include "muster/base/status.h"
#include "muster/device/device_name.h"

namespace muster {
namespace {

// The text of two parts that differ, or empty.
template <typename T>
bool Differ(const std::optional<T>& a, const std::optional<T>& b) {
  return a && b && *a != *b;
}

// Why the two cannot be one device; empty when they can.
std::string Conflict(const DeviceName& a, const DeviceName& b) {
  const char* what = Differ(a.job, b.job)           ? "jobs"
                     : Differ(a.replica, b.replica) ? "replicas"
                     : Differ(a.task, b.task)       ? "tasks"
                     : Differ(a.type, b.type)       ? "types"
                     : Differ(a.index, b.index)     ? "ids"
                                                    : nullptr;
  if (what == nullptr) return "";
  return absl::StrCat("Cannot merge devices with incompatible ", what, ": '", a.ToString(),
                      "' and '", b.ToString(), "'");
}

DeviceName WithoutDevice(DeviceName name) {
  name.type.reset();
  name.index.reset();
  return name;
}

bool IsHandle(DType type) {
  return IsRef(type) || BaseType(type) == DType::kResource;
}

// Ops that make what a handle points to: their device is where it is.
bool MakesHandle(const Node& node) {
  return node.num_inputs() == 0 && node.num_outputs() == 1 && IsHandle(node.output_types()[0]);
}

// Costs nothing to run anywhere, so it goes where its readers are.
bool IsGenerator(const Node& node) {
  return node.num_inputs() == 0 && node.num_outputs() == 1 && !IsHandle(node.output_types()[0]);
}

// Looks at its input only, or hands it out: goes where the input is.
bool FollowsInput(const Node& node) {
  const std::string& op = node.op();
  return op == "Shape" || op == "Size" || op == "Rank" || op == "_Retval";
}

// Boundaries of the step, which have their device from the node that was fed or fetched.
bool IsBoundary(const Node& node) {
  return node.op() == "_Arg" || node.op() == "_Retval";
}

class Placer {
 public:
  Placer(const Graph& graph, absl::Span<const std::string> devices, const PlaceOptions& options)
      : graph_(graph),
        device_texts_(devices),
        options_(options),
        groups_(graph.num_nodes()),
        parents_(graph.num_nodes()) {
    std::iota(parents_.begin(), parents_.end(), 0);
  }

  absl::StatusOr<Placement> Run() {
    if (device_texts_.empty()) return InvalidArgument("There are no devices to place nodes on");
    for (const std::string& text : device_texts_) {
      ASSIGN_OR_RETURN(DeviceName name, DeviceName::Parse(text));
      devices_.push_back(std::move(name));
    }
    for (const auto& node : graph_.nodes()) RETURN_IF_ERROR(ReadRequest(*node));
    RETURN_IF_ERROR(JoinClasses());
    RETURN_IF_ERROR(JoinHandles());
    result_.devices.assign(graph_.num_nodes(), -1);
    if (options_.explain) result_.reasons.resize(graph_.num_nodes());
    for (const auto& node : graph_.nodes()) {
      if (!IsLate(*node)) RETURN_IF_ERROR(Assign(*node));
    }
    for (const auto& node : graph_.nodes()) {
      if (IsLate(*node)) RETURN_IF_ERROR(AssignLate(*node));
    }
    return std::move(result_);
  }

 private:
  struct Group {
    DeviceName wanted;
    DeviceName binding;  // of the handles that it makes
    int size = 1;
    int device = -1;
    std::string reason;
  };

  absl::Status ReadRequest(const Node& node) {
    if (node.device().empty()) return absl::OkStatus();
    const auto known = parsed_.find(node.device());
    if (known != parsed_.end()) {
      groups_[node.id()].wanted = known->second;
    } else {
      absl::StatusOr<DeviceName> name = DeviceName::Parse(node.device());
      if (!name.ok()) {
        return InvalidArgument("Malformed device specification '", node.device(),
                               "' in node: {{node ", node.name(), "}}");
      }
      parsed_[node.device()] = *name;
      groups_[node.id()].wanted = *std::move(name);
    }
    if (MakesHandle(node)) groups_[node.id()].binding = groups_[node.id()].wanted;
    return absl::OkStatus();
  }

  int Root(int id) {
    while (parents_[id] != id) id = parents_[id] = parents_[parents_[id]];
    return id;
  }

  void Join(int into, int other, DeviceName wanted, DeviceName binding) {
    parents_[other] = into;
    groups_[into].wanted = std::move(wanted);
    groups_[into].binding = std::move(binding);
    groups_[into].size += groups_[other].size;
  }

  // Nodes with the same entry of _class, and the node that the entry names.
  absl::Status JoinClasses() {
    absl::flat_hash_map<std::string, const Node*> first;
    for (const auto& node : graph_.nodes()) {
      for (const std::string& name : node->ColocationGroups()) {
        const Node* named = graph_.FindNode(name);
        if (named == nullptr) named = first.try_emplace(name, node.get()).first->second;
        RETURN_IF_ERROR(Colocate(*node, *named));
      }
    }
    return absl::OkStatus();
  }

  absl::Status Colocate(const Node& node, const Node& named) {
    const int a = Root(named.id());
    const int b = Root(node.id());
    if (a == b) return absl::OkStatus();
    DeviceName left = groups_[a].wanted;
    DeviceName right = groups_[b].wanted;
    const std::string conflict = Conflict(left, right);
    if (!conflict.empty()) {
      const bool same_task = Conflict(WithoutDevice(left), WithoutDevice(right)).empty();
      if (!options_.allow_soft_placement || !same_task) {
        return InvalidArgument("Cannot colocate nodes {{colocation_node ", node.name(),
                               "}} and {{colocation_node ", named.name(), "}}: ", conflict,
                               "\n\t [[{{node ", node.name(), "}}]]");
      }
      // The part that they disagree about is left open.
      const bool types_differ = Differ(left.type, right.type);
      left.index.reset();
      right.index.reset();
      if (types_differ) {
        left.type.reset();
        right.type.reset();
      }
    }
    Join(a, b, left.Override(right), groups_[a].binding.Override(groups_[b].binding));
    return absl::OkStatus();
  }

  // A reader of a reference or resource goes to its maker, whatever was asked for.
  absl::Status JoinHandles() {
    for (const auto& node : graph_.nodes()) {
      for (int i = 0; i < node->num_inputs(); ++i) {
        if (!IsHandle(node->input_types()[i])) continue;
        const Node& maker = *node->input(i).node;
        const int a = Root(maker.id());
        const int b = Root(node->id());
        if (a == b) continue;
        const DeviceName& left = groups_[a].binding;
        const DeviceName& right = groups_[b].binding;
        if (!Conflict(left, right).empty()) {
          return InvalidArgument(
              "Cannot place the graph because a reference or resource edge connects colocation "
              "groups "
              "with incompatible resource devices: ",
              left.ToString(), " vs ", right.ToString(), ". The edge src node is ", maker.name(),
              " , and the dst node is ", node->name());
        }
        const DeviceName binding = left.Override(right);
        Join(a, b, groups_[b].wanted.Override(groups_[a].wanted).Override(binding), binding);
      }
    }
    return absl::OkStatus();
  }

  bool IsLate(const Node& node) {
    if (groups_[Root(node.id())].size > 1) return false;
    return IsBoundary(node) || ((IsGenerator(node) || FollowsInput(node)) && node.device().empty());
  }

  int FirstMatching(const DeviceName& wanted) const {
    for (size_t i = 0; i < devices_.size(); ++i) {
      if (wanted.Matches(devices_[i])) return static_cast<int>(i);
    }
    return -1;
  }

  absl::Status Assign(const Node& node) {
    Group& group = groups_[Root(node.id())];
    if (group.device < 0) {
      group.device = FirstMatching(group.wanted);
      group.reason =
          node.device().empty() && group.size == 1
              ? "no device was asked for"
              : absl::StrCat(
                    group.size > 1 ? "its group of " + std::to_string(group.size) + " nodes" : "it",
                    " asked for '", group.wanted.ToString(), "'");
      if (group.device < 0 && options_.allow_soft_placement) {
        group.device = FirstMatching(WithoutDevice(group.wanted));
        absl::StrAppend(&group.reason, ", which is not there");
      }
      if (group.device < 0) return NoDevice(node);
    }
    Set(node, group.device, group.reason);
    return absl::OkStatus();
  }

  absl::Status AssignLate(const Node& node) {
    if (FollowsInput(node)) {
      const int device = result_.devices[node.input(0).node->id()];
      // What it reads may be one that is placed late as well.
      if (device < 0) RETURN_IF_ERROR(AssignLate(*node.input(0).node));
      Set(node, result_.devices[node.input(0).node->id()],
          absl::StrCat("it follows its input ", node.input(0).node->name()));
      return absl::OkStatus();
    }
    if (result_.devices[node.id()] >= 0) return absl::OkStatus();
    int shared = -1;
    for (const Node::Consumer& reader : node.consumers()) {
      const int device = result_.devices[reader.node->id()];
      if (device < 0 || (shared >= 0 && device != shared)) {
        shared = -1;
        break;
      }
      shared = device;
    }
    if (node.device().empty() && shared >= 0) {
      Set(node, shared, "all that read it are there");
      return absl::OkStatus();
    }
    if (IsBoundary(node) && FirstMatching(groups_[node.id()].wanted) < 0) {
      // A fed value can be taken in anywhere; the nodes that were to be on that device say that it
      // does not exist.
      Set(node, 0, "it is fed");
      return absl::OkStatus();
    }
    return Assign(node);
  }

  void Set(const Node& node, int device, absl::string_view reason) {
    result_.devices[node.id()] = device;
    if (options_.explain) {
      result_.reasons[node.id()] = absl::StrCat(node.name(), " (", node.op(), ") is on ",
                                                device_texts_[device], ": ", reason);
    }
  }

  // Names the node of the group that asked for what there is not.
  absl::Status NoDevice(const Node& node) {
    const Node* asking = &node;
    for (const auto& other : graph_.nodes()) {
      if (Root(other->id()) != Root(node.id()) || other->device().empty()) continue;
      const DeviceName& asked = parsed_[other->device()];
      if (FirstMatching(options_.allow_soft_placement ? WithoutDevice(asked) : asked) >= 0)
        continue;
      asking = other.get();
      break;
    }
    const DeviceName& asked =
        asking->device().empty() ? groups_[Root(node.id())].wanted : parsed_[asking->device()];
    const bool is_gpu = asked.type && *asked.type == "GPU";
    return InvalidArgument(
        "Cannot assign a device for operation ", asking->name(), ": {{node ", asking->name(),
        "}} was explicitly assigned to ", asked.ToString(), " but available devices are [ ",
        absl::StrJoin(device_texts_, ", "),
        " ]. Make sure the device specification refers to a valid device.",
        is_gpu ? " The requested device appears to be a GPU, but CUDA is not enabled." : "",
        "\n\t [[", asking->name(), "]]");
  }

  const Graph& graph_;
  const absl::Span<const std::string> device_texts_;
  const PlaceOptions options_;
  std::vector<DeviceName> devices_;
  absl::flat_hash_map<std::string, DeviceName> parsed_;
  std::vector<Group> groups_;  // by id of the group's root
  std::vector<int> parents_;
  Placement result_;
};

}  // namespace

absl::StatusOr<Placement> PlaceGraph(const Graph& graph, absl::Span<const std::string> devices,
                                     const PlaceOptions& options) {
  return Placer(graph, devices, options).Run();
}

}  // namespace muster
