// The devices of this process that are alive, so that whoever gets a value can tell where it lies.
#pragma once

#include <cstdint>

#include "muster/device/device.h"

namespace muster {

// Thread-safe. Devices enter themselves when they are made and leave when they go.
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
