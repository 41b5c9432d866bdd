#include "muster/device/gpu/gpu_device.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "muster/base/log.h"
#include "muster/base/random.h"
#include "muster/base/settings.h"
#include "muster/device/device_directory.h"
#include "muster/device/gpu/gpu.h"
#include "muster/device/gpu/peer_memory.h"
#include "muster/tensor/memory_guard.h"

namespace muster {
namespace {

// Larger tensors are copied into pinned memory in parts, each sent while the next is copied.
// The first part is small, so that the card begins soon; each later one is twice as large up to the
// largest, since it takes a while to wake the threads that copy it.
constexpr size_t kFirstPartBytes = size_t{4} << 20;
constexpr size_t kLargestPartBytes = size_t{32} << 20;
// To wake other threads takes longer than one needs for less.
constexpr size_t kWorthSharingBytes = size_t{1} << 20;
constexpr size_t kMostWaitingBytes = size_t{512} << 20;
constexpr size_t kMostVirtualDevices = 64;
constexpr float kMostMegabytes = 16 << 20;

class GpuDevice : public Device {
 public:
  GpuDevice(DeviceAttributes device, int number, Gpu& gpu, Scheduler& scheduler)
      : Device(std::move(device)),
        gpu_(gpu),
        scheduler_(scheduler),
        allocator_(gpu.memory(),
                   MakeRef<GpuAccount>(name(), number, attributes().memory_limit_bytes)) {
    gpu_.AddDevice(attributes().memory_limit_bytes);
    DeviceDirectory::Global().Add(*this);
  }
  ~GpuDevice() override {
    DeviceDirectory::Global().Remove(*this);
    gpu_.RemoveDevice(attributes().memory_limit_bytes);
  }

  Allocator& allocator() override { return allocator_; }
  Allocator& host_allocator() override { return HostAllocator(); }
  Scheduler& scheduler() override { return scheduler_; }
  Stream* stream() override { return &gpu_; }
  Gpu* gpu() override { return &gpu_; }
  void Copy(const Tensor&, Device&, CopyDone done) override {
    std::move(done)(Internal("Copy is for memory of the host"));
  }

  absl::StatusOr<Tensor> BeginCopyToHost(const Tensor& tensor) override {
    ASSIGN_OR_RETURN(Tensor copy, CopyOut(tensor));
    // A step that fails drops its results before they have arrived.
    gpu_.KeepUntilDone(copy.buffer());
    return copy;
  }

  void CopyToHost(const Tensor& tensor, CopyDone done) override {
    absl::StatusOr<Tensor> to = CopyOut(tensor);
    if (!to.ok()) return std::move(done)(to.status());
    const size_t bytes = to->size_bytes();
    gpu_.WhenCopied(bytes,
                    [to = *std::move(to), done = std::move(done)](absl::Status status) mutable {
                      if (!status.ok()) return std::move(done)(std::move(status));
                      std::move(done)(std::move(to));
                    });
  }

  absl::StatusOr<Tensor> CopyFromHost(const Tensor& tensor) override {
    ASSIGN_OR_RETURN(Tensor copy, Tensor::Make(tensor.dtype(), tensor.shape(), allocator_));
    const size_t bytes = tensor.size_bytes();
    const Region* const region = tensor.buffer().region();
    const bool is_pinned = region != nullptr && (region->kind() == MemoryKind::kPinnedHost ||
                                                 PeerMemory::Global().Has(tensor.raw(), bytes));
    if (bytes > 0 && is_pinned) {
      RETURN_IF_ERROR(gpu_.CopyIn(copy.raw(), tensor.raw(), bytes));
      gpu_.KeepUntilDone(tensor.buffer());
      return copy;
    }
    size_t part_bytes = 0, wanted_bytes = kFirstPartBytes;
    for (size_t at = 0; at < bytes; at += part_bytes) {
      part_bytes = std::min(wanted_bytes, bytes - at);
      wanted_bytes = std::min(2 * wanted_bytes, kLargestPartBytes);
      Buffer part = gpu_.pinned().Allocate(part_bytes);
      if (!part) {
        return absl::ResourceExhaustedError(
            absl::StrCat("OOM when allocating ", part_bytes, " bytes for a copy to ", name(), " ",
                         gpu_.pinned().place(), ": ", TakeShortage()));
      }
      const char* const from = tensor.raw() + at;
      if (part_bytes < kWorthSharingBytes) {
        std::memcpy(part.data(), from, part_bytes);
      } else {
        scheduler_.ParallelFor(
            static_cast<int64_t>(part_bytes), 0.1, [&](int64_t begin, int64_t end) {
              CopyToPinned(part.data() + begin, from + begin, static_cast<size_t>(end - begin));
            });
      }
      RETURN_IF_ERROR(gpu_.CopyIn(copy.raw() + at, part.data(), part_bytes));
      gpu_.KeepUntilDone(std::move(part));
      if (at + part_bytes < bytes) gpu_.Submit();
      // Else as much pinned memory as the tensor has could be in use at once.
      if (at / kMostWaitingBytes != (at + part_bytes) / kMostWaitingBytes)
        RETURN_IF_ERROR(gpu_.Synchronize());
    }
    return copy;
  }

 private:
  absl::StatusOr<Tensor> CopyOut(const Tensor& tensor) {
    ASSIGN_OR_RETURN(Tensor to, Tensor::Make(tensor.dtype(), tensor.shape(), gpu_.pinned()));
    RETURN_IF_ERROR(gpu_.CopyOut(to.raw(), tensor.raw(), tensor.size_bytes()));
    return to;
  }

  Gpu& gpu_;
  Scheduler& scheduler_;
  GpuAllocator allocator_;
};

// The cards that a session may see, in its order: "1,0" of visible_device_list.
absl::StatusOr<std::vector<Gpu*>> Visible(const std::vector<Gpu*>& all, const std::string& list) {
  if (list.empty()) return all;
  std::vector<Gpu*> visible;
  for (absl::string_view text : absl::StrSplit(list, ',')) {
    size_t ordinal = 0;
    if (!absl::SimpleAtoi(text, &ordinal)) {
      return InvalidArgument("Could not parse entry in 'visible_device_list': '", text,
                             "'. visible_device_list = ", list);
    }
    if (ordinal >= all.size()) {
      return InvalidArgument("'visible_device_list' listed an invalid GPU id '", ordinal,
                             "' but visible device count is ", all.size());
    }
    if (std::find(visible.begin(), visible.end(), all[ordinal]) != visible.end())
      return InvalidArgument("visible_device_list contained a duplicate entry: ", list);
    visible.push_back(all[ordinal]);
  }
  return visible;
}

// A device to be: a card, or a part of its memory.
struct Part {
  Gpu* gpu;
  int64_t limit_bytes;
};

// The devices of the cards `visible`, with the checks and words of TensorFlow 1.15.
absl::StatusOr<std::vector<Part>> PartsOf(const std::vector<Gpu*>& visible,
                                          const DeviceOptions& options) {
  std::vector<Part> parts;
  const auto num_virtual = options.virtual_gpus.size();
  if (num_virtual > 0) {
    if (options.gpu_memory_fraction > 0) {
      return InvalidArgument(
          "It's invalid to set per_process_gpu_memory_fraction when virtual_devices is set.");
    }
    if (visible.size() < num_virtual) {
      return absl::UnknownError(absl::StrCat(
          "Not enough GPUs to create virtual devices. num_gpus_to_use: ", visible.size(),
          " #virtual_devices: ", num_virtual));
    }
    if (!options.visible_gpus.empty() && visible.size() != num_virtual) {
      return InvalidArgument(
          "The number of GPUs in visible_device_list doesn't match the number of elements in the "
          "virtual_devices list. #GPUs in visible_device_list: ",
          visible.size(), " virtual_devices.size(): ", num_virtual);
    }
    if (visible.size() != num_virtual) {
      return absl::UnknownError(absl::StrCat(
          "The number of valid GPUs doesn't match the number of elements in the virtual_devices "
          "list. #valid GPUs: ",
          visible.size(), " virtual_devices.size(): ", num_virtual));
    }
  }
  for (size_t i = 0; i < visible.size(); ++i) {
    Gpu* const gpu = visible[i];
    const auto total = static_cast<int64_t>(gpu->total_bytes());
    if (num_virtual > 0 && !options.virtual_gpus[i].empty()) {
      for (const float megabytes : options.virtual_gpus[i]) {
        if (!(megabytes >= 1) || megabytes > kMostMegabytes ||
            parts.size() >= kMostVirtualDevices) {
          return InvalidArgument("memory_limit_mb of a virtual GPU is ", megabytes,
                                 ": it must be from 1 to ", static_cast<int64_t>(kMostMegabytes),
                                 ", of at most ", kMostVirtualDevices, " devices");
        }
        parts.push_back({gpu, static_cast<int64_t>(megabytes) << 20});
      }
    } else if (options.gpu_memory_fraction > 0) {
      parts.push_back(
          {gpu, static_cast<int64_t>(options.gpu_memory_fraction * static_cast<double>(total))});
    } else {
      parts.push_back({gpu, total});
    }
  }
  return parts;
}

class CudaKind : public DeviceKind {
 public:
  absl::StatusOr<std::vector<std::unique_ptr<Device>>> MakeDevices(const std::string& task,
                                                                   const DeviceOptions& options,
                                                                   Scheduler& scheduler) override {
    std::vector<std::unique_ptr<Device>> devices;
    if (options.gpu_devices == 0 || !IsPossible()) return devices;
    const absl::StatusOr<std::vector<Gpu*>> all = Gpu::All();
    if (!all.ok()) {
      // The machine has a card, and its owner expects it to be used.
      LOG(WARNING) << "no GPU will be used: " << all.status().message();
      return devices;
    }
    if (!all->empty()) {
      if (const auto compiler = cuda::LoadCompiler(); !compiler.ok()) {
        LOG(WARNING) << "no GPU will be used: " << compiler.status().message();
        return devices;
      }
    }
    ASSIGN_OR_RETURN(std::vector<Gpu*> visible, Visible(*all, options.visible_gpus));
    if (options.gpu_devices > 0 && visible.size() > static_cast<size_t>(options.gpu_devices))
      visible.resize(static_cast<size_t>(options.gpu_devices));
    ASSIGN_OR_RETURN(const std::vector<Part> parts, PartsOf(visible, options));
    for (const Part& part : parts) {
      const auto number = static_cast<int>(devices.size());
      DeviceAttributes attributes;
      attributes.name = absl::StrCat(task, "/device:GPU:", number);
      attributes.device_type = "GPU";
      attributes.memory_limit_bytes = part.limit_bytes;
      attributes.incarnation = EntropySeed() | 1;
      attributes.physical_device_desc = part.gpu->description();
      devices.push_back(
          std::make_unique<GpuDevice>(std::move(attributes), number, *part.gpu, scheduler));
    }
    return devices;
  }

 private:
  static bool IsPossible() {
    return cuda::MachineHasCards() || !EnvironmentVariable("MUSTER_CUDA_DRIVER").empty();
  }
};

}  // namespace

DeviceKind& GpuKind() {
  static auto* const kind = new CudaKind;
  return *kind;
}

std::string WhyNoGpu() {
  const absl::StatusOr<std::vector<Gpu*>> all = Gpu::All();
  if (!all.ok()) return std::string(all.status().message());
  if (all->empty()) return "the NVIDIA driver shows no card (CUDA_VISIBLE_DEVICES hides them?)";
  const auto compiler = cuda::LoadCompiler();
  return compiler.ok() ? "" : std::string(compiler.status().message());
}

}  // namespace muster
