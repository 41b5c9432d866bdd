// The live devices of this process: they tell the receiver of a value in which memory it is.
#pragma once

#include <cstdint>

#include "muster/device/device.h"

namespace muster {

// Thread-safe. Devices register when constructed and unregister when destroyed.
class DeviceDirectory {
 public:
  static DeviceDirectory& Global();
  virtual ~DeviceDirectory() = default;
  virtual void Add(Device& device) = 0;
  virtual void Remove(const Device& device) = 0;
  // The device with this incarnation; null when it is not of this process or gone.
  virtual Device* Find(uint64_t incarnation) = 0;
};

}  // namespace muster
