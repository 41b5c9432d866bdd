#include <memory>

#include "muster/base/random.h"
#include "muster/device/device.h"
#include "muster/device/device_directory.h"
#include "muster/tensor/clone.h"

namespace muster {
namespace {

class CpuDevice : public Device {
 public:
  CpuDevice(DeviceAttributes attributes, Scheduler& scheduler)
      : Device(std::move(attributes)), scheduler_(scheduler) {
    DeviceDirectory::Global().Add(*this);
  }
  ~CpuDevice() override { DeviceDirectory::Global().Remove(*this); }
  Allocator& allocator() override { return HostAllocator(); }
  Allocator& host_allocator() override { return HostAllocator(); }
  Scheduler& scheduler() override { return scheduler_; }
  Stream* stream() override { return nullptr; }
  void Copy(const Tensor& tensor, Device& to, CopyDone done) override {
    // A real copy, so that several CPU devices behave like devices with memory of their own.
    std::move(done)(&to == this ? tensor : TryClone(tensor, to.allocator()));
  }

 private:
  Scheduler& scheduler_;
};

}  // namespace

std::unique_ptr<Device> NewCpuDevice(std::string name, Scheduler& scheduler) {
  DeviceAttributes attributes;
  attributes.name = std::move(name);
  attributes.device_type = "CPU";
  attributes.incarnation = EntropySeed() | 1;
  return std::make_unique<CpuDevice>(std::move(attributes), scheduler);
}

}  // namespace muster
