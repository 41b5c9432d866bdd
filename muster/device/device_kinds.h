// The kinds of devices that a task may have beside CPUs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "muster/device/device.h"

namespace muster {

// Which devices a task has; ConfigProto's device_count and gpu_options.
struct DeviceOptions {
  int cpu_devices = 1;
  int gpu_devices = -1;            // at most so many; negative: all that the machine has
  std::string visible_gpus = {};   // such as "1,0"; empty: all, in the driver's order
  double gpu_memory_fraction = 0;  // of a card's memory; 0: all of it, taken as it is needed
  // For each visible card, the memory of the devices that it is, in megabytes; none: it is one
  // device. Empty: all are.
  std::vector<std::vector<float>> virtual_gpus = {};
};

// Thread-safe.
class DeviceKind {
 public:
  virtual ~DeviceKind() = default;
  // The devices of this machine, called "<task>/device:<type>:0" and so on; none where it has none.
  // `scheduler` outlives them.
  virtual absl::StatusOr<std::vector<std::unique_ptr<Device>>> MakeDevices(
      const std::string& task, const DeviceOptions& options, Scheduler& scheduler) = 0;
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

// GPUs, then those of all registered kinds in the order of their registration.
absl::StatusOr<std::vector<std::unique_ptr<Device>>> MakeOtherDevices(const std::string& task,
                                                                      const DeviceOptions& options,
                                                                      Scheduler& scheduler);

}  // namespace muster
