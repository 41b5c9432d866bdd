// A device: memory, threads and copies. The memory of a CPU is that of the host; a device with
// memory of its own (MemoryKind::kDevice) works in the order of its stream.
#pragma once

#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"

#include "muster/base/scheduler.h"
#include "muster/base/status.h"
#include "muster/tensor/tensor.h"

namespace muster {

using Done = absl::AnyInvocable<void(absl::Status) &&>;
class Gpu;

struct DeviceAttributes {
  std::string name;         // "/job:localhost/replica:0/task:0/device:CPU:0"
  std::string device_type;  // "CPU"
  int64_t memory_limit_bytes = 256 << 20;
  uint64_t incarnation = 0;  // random, not zero, new for every process
  std::string physical_device_desc;
};

// An order of work that goes on after the calls that have put it there.
class Stream {
 public:
  virtual ~Stream() = default;
  // Calls `done` when all work put on the stream so far has finished.
  virtual void WhenDone(Done done) = 0;
};

// Thread-safe.
class Device {
 public:
  virtual ~Device() = default;
  const DeviceAttributes& attributes() const { return attributes_; }
  const std::string& name() const { return attributes_.name; }
  const std::string& type() const { return attributes_.device_type; }
  virtual Allocator& allocator() = 0;
  // Memory that the host can read; the device's own where they are the same.
  virtual Allocator& host_allocator() = 0;
  virtual Scheduler& scheduler() = 0;
  // Null: whatever a call does has happened when it returns, as on the CPU.
  virtual Stream* stream() = 0;
  // The card that it is (device/gpu/gpu.h); null: none.
  virtual Gpu* gpu() { return nullptr; }
  // Kernels find tensors in memory that the host cannot use, except where they say otherwise.
  bool has_own_memory() { return allocator().memory_kind() == MemoryKind::kDevice; }

  // Between devices whose memory is the host's. `done` gets a tensor in `to`'s memory.
  using CopyDone = absl::AnyInvocable<void(absl::StatusOr<Tensor>) &&>;
  virtual void Copy(const Tensor& tensor, Device& to, CopyDone done) = 0;
  // Between the memory of the host and that of the device, for plain data, in the order of the
  // stream. Of a device without memory of its own: the tensor itself.
  // `done` gets the elements when they have arrived, from any thread.
  virtual void CopyToHost(const Tensor& tensor, CopyDone done) { std::move(done)(tensor); }
  // The same, at once: the elements have arrived when all that is on the stream by then has finished.
  virtual absl::StatusOr<Tensor> BeginCopyToHost(const Tensor& tensor) { return tensor; }
  // The elements are there for all that is put on the stream afterwards; `tensor` is kept until
  // then.
  virtual absl::StatusOr<Tensor> CopyFromHost(const Tensor& tensor) { return tensor; }

 protected:
  explicit Device(DeviceAttributes attributes) : attributes_(std::move(attributes)) {}

 private:
  DeviceAttributes attributes_;
};

// A CPU device whose kernels run on `scheduler`, which must outlive it.
std::unique_ptr<Device> NewCpuDevice(std::string name, Scheduler& scheduler);

}  // namespace muster
