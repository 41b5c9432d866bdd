#include "muster/runtime/collectives.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"

#include "muster/base/status.h"
#include "muster/device/device_name.h"

namespace muster {

absl::string_view CollectiveTypeName(CollectiveType type) {
  switch (type) {
    case CollectiveType::kReduce:
      return "Reduce";
    case CollectiveType::kBroadcast:
      return "Broadcast";
    case CollectiveType::kGather:
      return "Gather";
    case CollectiveType::kAllToAll:
      return "AllToAll";
    case CollectiveType::kReduceScatter:
      return "ReduceScatter";
  }
  return "unknown";
}

std::string CollectiveParams::ToString() const {
  return absl::StrCat("Collective ", CollectiveTypeName(type), " of node '", node, "' (group ",
                      group_key, " of ", group_size, ", instance ", instance_key, ")");
}

int CollectiveGroup::RankOf(absl::string_view device) const {
  for (int i = 0; i < size(); ++i) {
    if (members[i].device.name == device) return i;
  }
  return -1;
}

absl::StatusOr<std::shared_ptr<const CollectiveGroup>> MakeCollectiveGroup(
    int32_t key, std::string device_type, std::vector<DeviceAttributes> devices) {
  struct Sortable {
    std::string task;
    std::string type;
    int index = 0;
    DeviceAttributes device;
  };
  std::vector<Sortable> sorted;
  for (DeviceAttributes& device : devices) {
    ASSIGN_OR_RETURN(const DeviceName name, DeviceName::Parse(device.name));
    if (!name.full()) {
      return InvalidArgument("'", device.name, "' in group ", key,
                             " is not the whole name of a device");
    }
    sorted.push_back(
        {std::string(TaskOf(device.name)), *name.type, *name.index, std::move(device)});
  }
  std::sort(sorted.begin(), sorted.end(), [](const Sortable& a, const Sortable& b) {
    return std::tie(a.task, a.type, a.index) < std::tie(b.task, b.type, b.index);
  });
  auto group = std::make_shared<CollectiveGroup>();
  group->key = key;
  group->device_type = std::move(device_type);
  for (Sortable& entry : sorted) {
    if (group->members.empty() || group->members.back().task != entry.task)
      group->devices_per_task.push_back(0);
    ++group->devices_per_task.back();
    group->members.push_back({std::move(entry.device), std::move(entry.task)});
  }
  return std::shared_ptr<const CollectiveGroup>(std::move(group));
}

CollectiveInstance InstanceOf(const CollectiveParams& params, const CollectiveGroup& group) {
  CollectiveInstance instance;
  instance.node = params.node;
  instance.group_key = params.group_key;
  instance.group_size = params.group_size;
  instance.instance_key = params.instance_key;
  instance.type = params.type;
  instance.dtype = params.dtype;
  instance.shape = params.shape;
  instance.device_type = group.device_type;
  instance.device = params.device.name;
  instance.is_source = params.is_source;
  instance.subdiv_offsets = params.subdiv_offsets;
  return instance;
}

}  // namespace muster
