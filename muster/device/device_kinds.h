// The kinds of devices that a task may have beside CPUs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "muster/device/device.h"

namespace muster {

// Thread-safe.
class DeviceKind {
 public:
  virtual ~DeviceKind() = default;
  // The devices of this machine, called "<task>/device:<type>:0" and so on; none where it has none.
  // `scheduler` outlives them.
  virtual absl::StatusOr<std::vector<std::unique_ptr<Device>>> MakeDevices(
      const std::string& task, Scheduler& scheduler) = 0;
};

// Tasks that are made while it lives have devices of the kind, which must outlive them.
class RegisteredDeviceKind {
 public:
  explicit RegisteredDeviceKind(DeviceKind& kind);
  ~RegisteredDeviceKind();
  RegisteredDeviceKind(const RegisteredDeviceKind&) = delete;
  RegisteredDeviceKind& operator=(const RegisteredDeviceKind&) = delete;

 private:
  DeviceKind& kind_;
};

// Of all registered kinds, in the order of their registration.
absl::StatusOr<std::vector<std::unique_ptr<Device>>> MakeOtherDevices(const std::string& task,
                                                                      Scheduler& scheduler);

}  // namespace muster
