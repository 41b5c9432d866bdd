#include "muster/task/task_devices.h"

#include <algorithm>
#include <iterator>

#include "absl/container/flat_hash_map.h"

#include "muster/device/device_kinds.h"
#include "muster/tensor/memory_place.h"

namespace muster {
namespace {

constexpr int kMaxCpuDevices = 1024;

// What it gives is charged to an account.
class ChargingAllocator : public PlacedAllocator {
 public:
  ChargingAllocator(Allocator& allocator, RefPtr<MemoryAccount> account)
      : allocator_(allocator), account_(std::move(account)) {}
  Buffer Allocate(size_t size_bytes) override {
    const MemoryAccount::Scope charged(account_.get());
    return allocator_.Allocate(size_bytes);
  }
  MemoryKind memory_kind() const override { return allocator_.memory_kind(); }
  Usage usage() const override { return allocator_.usage(); }
  std::string place() const override { return PlaceOf(allocator_); }

 private:
  Allocator& allocator_;
  const RefPtr<MemoryAccount> account_;  // null: no account
};

// A device as a session sees it.
class SessionDevice : public Device {
 public:
  SessionDevice(Device& device, DeviceAttributes attributes, const RefPtr<MemoryAccount>& account)
      : Device(std::move(attributes)),
        device_(device),
        allocator_(device.allocator(), account),
        host_allocator_(device.host_allocator(), account) {}
  Allocator& allocator() override { return allocator_; }
  Allocator& host_allocator() override { return host_allocator_; }
  Scheduler& scheduler() override { return device_.scheduler(); }
  Stream* stream() override { return device_.stream(); }
  Gpu* gpu() override { return device_.gpu(); }
  void Copy(const Tensor& tensor, Device& to, CopyDone done) override {
    device_.Copy(tensor, &to == this ? device_ : to, std::move(done));
  }
  void CopyToHost(const Tensor& tensor, CopyDone done) override {
    device_.CopyToHost(tensor, std::move(done));
  }
  absl::StatusOr<Tensor> BeginCopyToHost(const Tensor& tensor) override {
    return device_.BeginCopyToHost(tensor);
  }
  absl::StatusOr<Tensor> CopyFromHost(const Tensor& tensor) override {
    return device_.CopyFromHost(tensor);
  }

 private:
  Device& device_;
  ChargingAllocator allocator_;
  ChargingAllocator host_allocator_;
};

std::string NameOf(const std::string& task, absl::string_view type, int number) {
  return absl::StrCat(task, "/device:", type, ":", number);
}

}  // namespace

absl::StatusOr<std::shared_ptr<const TaskDevices>> TaskDevices::Create(std::string task,
                                                                       const DeviceOptions& options,
                                                                       Scheduler& scheduler) {
  const int cpu_devices = options.cpu_devices;
  if (cpu_devices < 1 || cpu_devices > kMaxCpuDevices) {
    return InvalidArgument("device_count CPU is ", cpu_devices, "; a task has between 1 and ",
                           kMaxCpuDevices, " CPU devices");
  }
  std::vector<std::unique_ptr<Device>> devices;
  for (int i = 0; i < cpu_devices; ++i)
    devices.push_back(NewCpuDevice(NameOf(task, "CPU", i), scheduler));
  ASSIGN_OR_RETURN(std::vector<std::unique_ptr<Device>> others, MakeOtherDevices(task, options, scheduler));
  std::move(others.begin(), others.end(), std::back_inserter(devices));
  return Of(std::move(task), std::move(devices));
}

std::shared_ptr<const TaskDevices> TaskDevices::Of(std::string task,
                                                   std::vector<std::unique_ptr<Device>> devices) {
  return std::shared_ptr<const TaskDevices>(new TaskDevices(std::move(task), std::move(devices)));
}

std::shared_ptr<const TaskDevices> TaskDevices::ForSession(
    std::shared_ptr<const TaskDevices> devices, const std::string& task,
    const RefPtr<MemoryAccount>& account) {
  if (task == devices->task_ && !account) return devices;
  std::vector<std::unique_ptr<Device>> views;
  absl::flat_hash_map<std::string, int> next_number;
  for (Device* device : devices->list_) {
    DeviceAttributes attributes = device->attributes();
    attributes.name = NameOf(task, device->type(), next_number[device->type()]++);
    views.push_back(std::make_unique<SessionDevice>(*device, std::move(attributes), account));
  }
  std::shared_ptr<TaskDevices> view(new TaskDevices(task, std::move(views)));
  view->behind_ = std::move(devices);
  return view;
}

TaskDevices::TaskDevices(std::string task, std::vector<std::unique_ptr<Device>> devices)
    : task_(std::move(task)), owned_(std::move(devices)) {
  for (const auto& device : owned_) list_.push_back(device.get());
}

std::vector<DeviceAttributes> TaskDevices::attributes() const {
  std::vector<DeviceAttributes> all;
  for (const Device* device : list_) all.push_back(device->attributes());
  return all;
}

Device* TaskDevices::Find(absl::string_view name) const {
  for (Device* device : list_)
    if (device->name() == name) return device;
  return nullptr;
}

Device* TaskDevices::FindNumber(const DeviceName& name) const {
  if (!name.type || !name.index) return nullptr;
  return Find(NameOf(task_, *name.type, *name.index));
}

}  // namespace muster
