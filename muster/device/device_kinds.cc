#include "muster/device/device_kinds.h"

#include <algorithm>
#include <iterator>

#include "muster/base/mutex.h"
#include "muster/device/gpu/gpu_device.h"

namespace muster {
namespace {

struct Kinds {
  Mutex mutex;
  std::vector<DeviceKind*> list ABSL_GUARDED_BY(mutex);
};

Kinds& AllKinds() {
  static auto* kinds = [] {
    auto* made = new Kinds;
    MutexLock lock(made->mutex);
    made->list.push_back(&GpuKind());
    return made;
  }();
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
                                                                      const DeviceOptions& options,
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
                     kind->MakeDevices(task, options, scheduler));
    std::move(made.begin(), made.end(), std::back_inserter(devices));
  }
  return devices;
}

}  // namespace muster
