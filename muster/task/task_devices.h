// The devices of a task: all of them are made here, and sessions see them under their own names.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "muster/base/ref_counted.h"
#include "muster/device/device.h"
#include "muster/device/device_kinds.h"
#include "muster/device/device_name.h"
#include "muster/tensor/memory_guard.h"

namespace muster {

// Immutable. Held by shared pointers, since what a session started may outlive it (an iterator that
// prefetches).
class TaskDevices {
 public:
  // "<task>/device:CPU:0" and so on, then those of the registered kinds (device_kinds.h).
  // `scheduler` runs their kernels and outlives them.
  // InvalidArgument unless there are between 1 and 1024 CPU devices.
  static absl::StatusOr<std::shared_ptr<const TaskDevices>> Create(std::string task,
                                                                   const DeviceOptions& options,
                                                                   Scheduler& scheduler);
  static std::shared_ptr<const TaskDevices> Of(std::string task,
                                               std::vector<std::unique_ptr<Device>> devices);
  // The same devices for a session in which the task is called `task`: numbered per type, with
  // memory charged to `account` (null: to none). `devices` itself where nothing differs.
  static std::shared_ptr<const TaskDevices> ForSession(std::shared_ptr<const TaskDevices> devices,
                                                       const std::string& task,
                                                       const RefPtr<MemoryAccount>& account);

  const std::string& task() const { return task_; }
  const std::vector<Device*>& list() const { return list_; }
  std::vector<DeviceAttributes> attributes() const;
  // Null where there is none.
  Device* Find(absl::string_view name) const;
  // By type and number alone: sessions may know the task under another name.
  Device* FindNumber(const DeviceName& name) const;

 private:
  TaskDevices(std::string task, std::vector<std::unique_ptr<Device>> devices);

  const std::string task_;
  std::shared_ptr<const TaskDevices> behind_;  // of which these are a view; null: they are none
  const std::vector<std::unique_ptr<Device>> owned_;
  std::vector<Device*> list_;
};

}  // namespace muster
