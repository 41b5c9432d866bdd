#include "muster/graph/place/place.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"

#include "muster/base/status.h"
#include "muster/device/device_name.h"
#include "muster/graph/infer.h"
#include "muster/graph/place/device_index.h"

namespace muster {
namespace {

// Members of a group that an explanation names; the others are counted.
constexpr size_t kMembersShown = 4;

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

// May run parts of its body elsewhere, so a handle that it is given does not hold it.
bool CallsFunction(const Node& node) {
  const std::string& op = node.op();
  return op == "PartitionedCall" || op == "StatefulPartitionedCall" || op == "RemoteCall" ||
         op == "SymbolicGradient" || node.graph().functions().contains(op);
}

class Placer {
 public:
  Placer(const Graph& graph, const DeviceIndex& devices, const PlaceOptions& options)
      : graph_(graph),
        devices_(devices),
        options_(options),
        groups_(graph.num_nodes()),
        parents_(graph.num_nodes()) {
    std::iota(parents_.begin(), parents_.end(), 0);
  }

  absl::StatusOr<Placement> Run() {
    if (!options_.local_task.empty()) {
      ASSIGN_OR_RETURN(local_task_, DeviceName::Parse(options_.local_task));
    }
    if (!options_.default_device.empty()) {
      ASSIGN_OR_RETURN(default_device_, DeviceName::Parse(options_.default_device));
    }
    for (const auto& node : graph_.nodes()) RETURN_IF_ERROR(ReadRequest(*node));
    RETURN_IF_ERROR(JoinClasses());
    RETURN_IF_ERROR(JoinHandles());
    if (options_.explain) FindMembers();
    result_.devices.assign(graph_.num_nodes(), -1);
    if (options_.explain) result_.reasons.resize(graph_.num_nodes());
    RETURN_IF_ERROR(AssignFixed());
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
    DeviceName binding;     // of the handles that it makes
    TypeSet types = 0;      // that have kernels for all members
    TypeSet preferred = 0;  // of them
    int size = 1;
    int device = -1;
    std::string reason;
  };

  absl::Status ReadRequest(const Node& node) {
    Group& group = groups_[node.id()];
    if (!node.device().empty()) {
      const auto known = parsed_.find(node.device());
      if (known != parsed_.end()) {
        group.wanted = known->second;
      } else {
        absl::StatusOr<DeviceName> name = DeviceName::Parse(node.device());
        if (!name.ok()) {
          return InvalidArgument("Malformed device specification '", node.device(),
                                 "' in node: {{node ", node.name(), "}}");
        }
        parsed_[node.device()] = *name;
        group.wanted = *std::move(name);
      }
      if (MakesHandle(node)) group.binding = group.wanted;
    }
    const auto fixed = options_.fixed.find(node.id());
    if (fixed != options_.fixed.end()) {
      if (fixed->second < 0 || fixed->second >= num_devices()) {
        return InvalidArgument("{{node ", node.name(), "}} was placed on device ", fixed->second,
                               " of ", num_devices());
      }
      group.wanted = group.binding = devices_.name(fixed->second);
    }
    return ReadTypes(node, group);
  }

  int num_devices() const { return devices_.size(); }

  absl::Status ReadTypes(const Node& node, Group& group) const {
    group.types = group.preferred = devices_.all_types();
    if (options_.supports == nullptr || IsBoundary(node)) return absl::OkStatus();
    TypeSet types = 0, preferred = 0;
    int most = 1;
    for (size_t i = 0; i < devices_.types().size(); ++i) {
      const int preference = options_.supports(node, devices_.types()[i]);
      if (preference == 0) continue;
      types |= TypeSet{1} << i;
      if (preference > most) preferred = 0;
      most = std::max(most, preference);
      if (preference == most) preferred |= TypeSet{1} << i;
    }
    if (types == 0) {
      const bool is_elsewhere = group.wanted.job && !Conflict(group.wanted, local_task_).empty();
      if (is_elsewhere) return absl::OkStatus();
      return InvalidArgument(
          "No OpKernel was registered to support Op '", node.op(), "' used by {{node ", node.name(),
          "}} with these attrs: ", SummarizeNode(node), "\nRegistered devices: [",
          devices_.TypesText(group.types), "]\n\t [[", node.name(), "]]");
    }
    group.types = types;
    group.preferred = preferred;
    return absl::OkStatus();
  }

  int Root(int id) {
    while (parents_[id] != id) id = parents_[id] = parents_[parents_[id]];
    return id;
  }

  void Join(int into, int other, DeviceName wanted, DeviceName binding) {
    // The larger one stays the root, so that roots are found fast.
    if (groups_[into].size < groups_[other].size) std::swap(into, other);
    parents_[other] = into;
    groups_[into].wanted = std::move(wanted);
    groups_[into].binding = std::move(binding);
    groups_[into].types &= groups_[other].types;
    groups_[into].preferred &= groups_[other].preferred;
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
    if ((groups_[a].types & groups_[b].types) == 0) {
      if (options_.allow_soft_placement) return absl::OkStatus();
      return InvalidArgument("Cannot colocate nodes {{colocation_node ", node.name(),
                             "}} and {{colocation_node ", named.name(),
                             "}} because no device type supports both of those nodes and the "
                             "other nodes colocated with them.\n\t [[{{node ",
                             node.name(), "}}]]");
    }
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
      if (CallsFunction(*node)) continue;
      for (int i = 0; i < node->num_inputs(); ++i) {
        if (!IsHandle(node->input_types()[i])) continue;
        const Node& maker = *node->input(i).node;
        if (CallsFunction(maker)) continue;
        RETURN_IF_ERROR(FollowHandle(*node, maker));
      }
    }
    return absl::OkStatus();
  }

  absl::Status FollowHandle(const Node& node, const Node& maker) {
    const int a = Root(maker.id());
    const int b = Root(node.id());
    if (a == b) return absl::OkStatus();
    const DeviceName& left = groups_[a].binding;
    const DeviceName& right = groups_[b].binding;
    if (!Conflict(left, right).empty()) {
      return InvalidArgument(
          "Cannot place the graph because a reference or resource edge connects colocation groups "
          "with incompatible resource devices: ",
          left.ToString(), " vs ", right.ToString(), ". The edge src node is ", maker.name(),
          " , and the dst node is ", node.name());
    }
    if ((groups_[a].types & groups_[b].types) == 0) {
      return InvalidArgument(
          "Cannot place the graph because a reference or resource edge connects colocation groups "
          "with incompatible supported devices: [",
          devices_.TypesText(groups_[a].types), "] vs [", devices_.TypesText(groups_[b].types),
          "]. The edge src node is ", maker.name(), " , and the dst node is ", node.name());
    }
    DeviceName binding = left.Override(right);
    DeviceName wanted = groups_[b].wanted.Override(groups_[a].wanted).Override(binding);
    Join(a, b, std::move(wanted), std::move(binding));
    return absl::OkStatus();
  }

  bool IsLate(const Node& node) {
    if (groups_[Root(node.id())].size > 1 || options_.fixed.contains(node.id())) return false;
    return IsBoundary(node) || IsGenerator(node) || FollowsInput(node);
  }

  absl::Status AssignFixed() {
    for (const auto& [id, device] : options_.fixed) {
      if (id < 0 || id >= graph_.num_nodes()) continue;
      Group& group = groups_[Root(id)];
      if (group.device >= 0 && group.device != device) {
        return InvalidArgument(
            "{{node ", graph_.nodes()[id]->name(), "}} was placed on ", devices_.text(device),
            " before, but must be with nodes that were placed on ", devices_.text(group.device));
      }
      group.device = device;
      if (options_.explain) group.reason = "it, or what it must be with, was placed there before";
    }
    return absl::OkStatus();
  }

  absl::Status Assign(const Node& node) {
    Group& group = groups_[Root(node.id())];
    if (group.device < 0) {
      const bool is_free = !group.wanted.type && !group.wanted.index;
      if (is_free && !options_.default_device.empty())
        group.device = devices_.First(default_device_.Override(group.wanted), group.types);
      const TypeSet preferred = group.types & group.preferred;
      if (group.device < 0 && is_free && preferred != 0)
        group.device = devices_.First(group.wanted, preferred);
      if (group.device < 0) group.device = devices_.First(group.wanted, group.types);
      const bool is_missing = group.device < 0;
      DeviceName wanted = group.wanted;
      if (is_missing && options_.allow_soft_placement) {
        wanted = WithoutDevice(group.wanted);
        group.device = devices_.First(wanted, group.types);
      }
      if (group.device < 0) return NoDevice(node);
      if (options_.explain) group.reason = Reason(group, node, wanted, is_missing);
    }
    Set(node, group.device, group.reason);
    return absl::OkStatus();
  }

  std::string Reason(const Group& group, const Node& node, const DeviceName& wanted,
                     bool is_missing) {
    std::string text;
    if (group.size > 1) {
      const std::vector<const Node*>& members = members_[Root(node.id())];
      text = absl::StrCat("its group of ", group.size, " nodes (");
      for (size_t i = 0; i < members.size(); ++i) {
        absl::StrAppend(&text, i == 0 ? "" : ", ", members[i]->name());
      }
      absl::StrAppend(&text, group.size > static_cast<int>(members.size()) ? ", ...)" : ")");
    } else {
      text = "it";
    }
    const std::string asked = group.wanted.ToString();
    absl::StrAppend(
        &text, asked.empty() ? " asked for no device" : absl::StrCat(" asked for '", asked, "'"));
    if (is_missing) absl::StrAppend(&text, ", which is not there or has no kernel");
    absl::StrAppend(&text, "; ", devices_.Explain(wanted, group.types), WhyNotOnGpu(group, node));
    return text;
  }

  // Empty where it is on one, or there is none.
  std::string WhyNotOnGpu(const Group& group, const Node& node) {
    const auto gpu = std::find(devices_.types().begin(), devices_.types().end(), "GPU");
    if (gpu == devices_.types().end() || devices_.name(group.device).type == "GPU") return "";
    const TypeSet bit = TypeSet{1} << (gpu - devices_.types().begin());
    constexpr absl::string_view kStart = "; not on a GPU: ";
    if ((group.types & bit) == 0) {
      const auto found = blockers_.find(Root(node.id()));
      const Node& blocker = found == blockers_.end() ? node : *found->second;
      return absl::StrCat(
          kStart, &blocker == &node ? "" : absl::StrCat("with ", blocker.name(), ", and "),
          options_.why_not == nullptr ? "there is no kernel" : options_.why_not(blocker, "GPU"));
    }
    if (group.wanted.type) return absl::StrCat(kStart, *group.wanted.type, " was asked for");
    if ((group.preferred & bit) == 0)
      return absl::StrCat(kStart, "its kernel there works on the memory of the host");
    return absl::StrCat(kStart, "the devices that fit have none");
  }

  void FindMembers() {
    for (const auto& node : graph_.nodes()) {
      const int root = Root(node->id());
      if (groups_[root].size == 1) continue;
      if (options_.supports != nullptr && !IsBoundary(*node) && !options_.supports(*node, "GPU"))
        blockers_.emplace(root, node.get());
      std::vector<const Node*>& members = members_[root];
      if (members.size() < kMembersShown) members.push_back(node.get());
    }
  }

  bool MayBeOn(const Node& node, int device) const {
    const Group& group = groups_[node.id()];
    return devices_.Fits(device, group.wanted, group.types);
  }

  absl::Status AssignLate(const Node& node) {
    if (result_.devices[node.id()] >= 0) return absl::OkStatus();
    if (FollowsInput(node)) return AssignToInput(node);
    const int readers = DeviceOfReaders(node);
    // A fed node's device request is not binding: nodes that must be on that device report that it
    // does not exist.
    const bool is_fed = IsBoundary(node);
    if (readers >= 0 && MayBeOn(node, readers) && !(is_fed && !node.device().empty())) {
      Set(node, readers, "all that read it are there");
      return absl::OkStatus();
    }
    if (is_fed && devices_.First(groups_[node.id()].wanted, groups_[node.id()].types) < 0) {
      Set(node, devices_.First({}, devices_.all_types()), "it is fed, and may be anywhere");
      return absl::OkStatus();
    }
    return Assign(node);
  }

  // Chains of such nodes are walked to their start.
  absl::Status AssignToInput(const Node& node) {
    std::vector<const Node*> chain;
    const Node* start = &node;
    while (result_.devices[start->id()] < 0 && FollowsInput(*start) && IsLate(*start)) {
      chain.push_back(start);
      start = start->input(0).node;
      if (start == &node) break;
    }
    if (result_.devices[start->id()] < 0)
      RETURN_IF_ERROR(start == &node ? Assign(*start) : AssignLate(*start));
    for (auto next = chain.rbegin(); next != chain.rend(); ++next) {
      const Node& follower = **next;
      const int device = result_.devices[follower.input(0).node->id()];
      if (IsBoundary(follower) || MayBeOn(follower, device)) {
        Set(follower, device,
            absl::StrCat("it follows its input ", follower.input(0).node->name()));
      } else {
        RETURN_IF_ERROR(Assign(follower));
      }
    }
    return absl::OkStatus();
  }

  // The device of all readers; -1 when they are on several or not known yet.
  int DeviceOfReaders(const Node& node) const {
    int shared = -1;
    for (const Node::Consumer& reader : node.consumers()) {
      const int device = result_.devices[reader.node->id()];
      if (device < 0 || (shared >= 0 && device != shared)) return -1;
      shared = device;
    }
    return shared;
  }

  void Set(const Node& node, int device, absl::string_view reason) {
    result_.devices[node.id()] = device;
    if (options_.explain) {
      result_.reasons[node.id()] = absl::StrCat(node.name(), " (", node.op(), ") is on ",
                                                devices_.text(device), ": ", reason);
    }
  }

  // Names the node of the group that asked for a device that does not exist.
  absl::Status NoDevice(const Node& node) {
    const Group& group = groups_[Root(node.id())];
    const Node* asking = &node;
    for (const auto& other : graph_.nodes()) {
      if (Root(other->id()) != Root(node.id()) || other->device().empty()) continue;
      const DeviceName& asked = parsed_[other->device()];
      if (devices_.First(options_.allow_soft_placement ? WithoutDevice(asked) : asked,
                         group.types) >= 0) {
        continue;
      }
      asking = other.get();
      break;
    }
    const DeviceName& asked = asking->device().empty() ? group.wanted : parsed_[asking->device()];
    const std::string start =
        absl::StrCat("Cannot assign a device for operation ", asking->name(), ": ");
    const std::string end = absl::StrCat("\n\t [[", asking->name(), "]]");
    if (devices_.First(asked, devices_.all_types()) >= 0) {
      return InvalidArgument(start, "Could not satisfy explicit device specification '",
                             asked.ToString(), "' because no supported kernel for ",
                             asked.type.value_or(devices_.TypesText(devices_.all_types())),
                             " devices is available: ", asking->op(), " has kernels for ",
                             devices_.TypesText(group.types), end);
    }
    const bool is_gpu = asked.type && *asked.type == "GPU";
    return InvalidArgument(
        start, "{{node ", asking->name(), "}} was explicitly assigned to ", asked.ToString(),
        " but available devices are [ ", devices_.AllText(),
        " ]. Make sure the device specification refers to a valid device.",
        is_gpu ? " The requested device appears to be a GPU, but CUDA is not enabled." : "", end);
  }

  const Graph& graph_;
  const DeviceIndex& devices_;
  const PlaceOptions& options_;
  DeviceName local_task_;
  DeviceName default_device_;
  absl::flat_hash_map<std::string, DeviceName> parsed_;
  std::vector<Group> groups_;  // by id of the group's root
  std::vector<int> parents_;
  absl::flat_hash_map<int, std::vector<const Node*>> members_;  // by root, the first few
  absl::flat_hash_map<int, const Node*>
      blockers_;  // by root: the first that no GPU has a kernel for
  Placement result_;
};

}  // namespace

absl::StatusOr<Placement> PlaceGraph(const Graph& graph, absl::Span<const std::string> devices,
                                     const PlaceOptions& options) {
  if (devices.empty()) return InvalidArgument("There are no devices to place nodes on");
  ASSIGN_OR_RETURN(const DeviceIndex index, DeviceIndex::Make(devices, options.local_task));
  return Placer(graph, index, options).Run();
}

}  // namespace muster
