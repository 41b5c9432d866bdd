#include "muster/device/device_directory.h"

#include "absl/container/flat_hash_map.h"

#include "muster/base/mutex.h"

namespace muster {
namespace {

class Directory : public DeviceDirectory {
 public:
  void Add(Device& device) override {
    MutexLock lock(mutex_);
    by_incarnation_[device.attributes().incarnation] = &device;
  }
  void Remove(const Device& device) override {
    MutexLock lock(mutex_);
    by_incarnation_.erase(device.attributes().incarnation);
  }
  Device* Find(uint64_t incarnation) override {
    MutexLock lock(mutex_);
    const auto found = by_incarnation_.find(incarnation);
    return found == by_incarnation_.end() ? nullptr : found->second;
  }

 private:
  Mutex mutex_;
  absl::flat_hash_map<uint64_t, Device*> by_incarnation_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

DeviceDirectory& DeviceDirectory::Global() {
  static auto* directory = new Directory;
  return *directory;
}

}  // namespace muster
