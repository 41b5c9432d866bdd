#include "muster/device/device_kinds.h"

#include <algorithm>
#include <iterator>

#include "muster/base/mutex.h"

namespace muster {
namespace {

struct Kinds {
  Mutex mutex;
  std::vector<DeviceKind*> list ABSL_GUARDED_BY(mutex);
};

Kinds& AllKinds() {
  static auto* kinds = new Kinds;
  return *kinds;
}

}  // namespace

RegisteredDeviceKind::RegisteredDeviceKind(DeviceKind& kind) : kind_(kind) {
  Kinds& kinds = AllKinds();
  MutexLock lock(kinds.mutex);
  kinds.list.push_back(&kind_);
}

RegisteredDeviceKind::~RegisteredDeviceKind() {
  Kinds& kinds = AllKinds();
  MutexLock lock(kinds.mutex);
  kinds.list.erase(std::find(kinds.list.begin(), kinds.list.end(), &kind_));
}

absl::StatusOr<std::vector<std::unique_ptr<Device>>> MakeOtherDevices(const std::string& task,
                                                                      Scheduler& scheduler) {
  std::vector<DeviceKind*> list;
  {
    Kinds& kinds = AllKinds();
    MutexLock lock(kinds.mutex);
    list = kinds.list;
  }
  std::vector<std::unique_ptr<Device>> devices;
  for (DeviceKind* const kind : list) {
    ASSIGN_OR_RETURN(std::vector<std::unique_ptr<Device>> made,
                     kind->MakeDevices(task, scheduler));
    std::move(made.begin(), made.end(), std::back_inserter(devices));
  }
  return devices;
}

}  // namespace muster
