#include "muster/device/gpu/gpu.h"

#include <cstdio>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include <pthread.h>

#include "muster/base/log.h"

namespace muster {
namespace {

// Events are looked at this long before the thread sleeps: waking it costs as much as a small step.
constexpr absl::Duration kSpin = absl::Microseconds(300);

thread_local cuda::Context current_context = nullptr;

cuda::Address AddressOf(const void* memory) {
  return reinterpret_cast<cuda::Address>(memory);
}

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

absl::StatusOr<std::vector<Gpu*>> Gpu::All() {
  static const auto* const cards = [] {
    auto* const made = new absl::StatusOr<std::vector<Gpu*>>;
    *made = [&]() -> absl::StatusOr<std::vector<Gpu*>> {
      ASSIGN_OR_RETURN(const cuda::Driver* const driver, cuda::LoadDriver());
      int count = 0;
      RETURN_IF_ERROR(cuda::Check(driver->DeviceGetCount(&count), "cuDeviceGetCount"));
      std::vector<Gpu*> all;
      for (int i = 0; i < count; ++i) {
        std::unique_ptr<Gpu> gpu(new Gpu(i, *driver));
        RETURN_IF_ERROR(gpu->Start());
        all.push_back(gpu.release());
      }
      return all;
    }();
    return made;
  }();
  return *cards;
}

absl::Status Gpu::Start() {
  RETURN_IF_ERROR(cuda::Check(driver_.DeviceGet(&device_, ordinal_), "cuDeviceGet"));
  char name[256] = "";
  RETURN_IF_ERROR(
      cuda::Check(driver_.DeviceGetName(name, sizeof(name), device_), "cuDeviceGetName"));
  name_ = name;
  RETURN_IF_ERROR(cuda::Check(driver_.DeviceTotalMem(&total_bytes_, device_), "cuDeviceTotalMem"));
  const auto read = [&](int attribute, int* value) {
    return cuda::Check(driver_.DeviceGetAttribute(value, attribute, device_),
                       "cuDeviceGetAttribute");
  };
  int major = 0, minor = 0, bus = 0, slot = 0, domain = 0;
  RETURN_IF_ERROR(read(cuda::kComputeMajor, &major));
  RETURN_IF_ERROR(read(cuda::kComputeMinor, &minor));
  RETURN_IF_ERROR(read(cuda::kMultiprocessors, &multiprocessors_));
  RETURN_IF_ERROR(read(cuda::kPciBus, &bus));
  RETURN_IF_ERROR(read(cuda::kPciDevice, &slot));
  RETURN_IF_ERROR(read(cuda::kPciDomain, &domain));
  compute_capability_ = 10 * major + minor;
  description_ = absl::StrFormat(
      "device: %d, name: %s, pci bus id: %04x:%02x:%02x.0, compute capability: %d.%d", ordinal_,
      name_, domain, bus, slot, major, minor);
  RETURN_IF_ERROR(
      cuda::Check(driver_.DevicePrimaryCtxRetain(&context_, device_), "cuDevicePrimaryCtxRetain"));
  RETURN_IF_ERROR(MakeCurrent());
  RETURN_IF_ERROR(
      cuda::Check(driver_.StreamCreate(&stream_, cuda::kStreamNonBlocking), "cuStreamCreate"));
  memory_ = std::make_unique<GpuMemory>(*this);
  pinned_ = std::make_unique<PinnedMemory>(*this);
  programs_ = std::make_unique<GpuPrograms>(*this);
  std::thread([this] { RunWaiter(); }).detach();
  return absl::OkStatus();
}

absl::Status Gpu::MakeCurrent() const {
  if (current_context == context_) return absl::OkStatus();
  RETURN_IF_ERROR(cuda::Check(driver_.CtxSetCurrent(context_), "cuCtxSetCurrent"));
  current_context = context_;
  return absl::OkStatus();
}

absl::Status Gpu::Launch(cuda::Function function, const GpuGrid& grid, void** arguments) {
  RETURN_IF_ERROR(MakeCurrent());
  return cuda::Check(driver_.LaunchKernel(function, grid.blocks_x, grid.blocks_y, grid.blocks_z,
                                          grid.threads_x, grid.threads_y, grid.threads_z,
                                          grid.shared_bytes, stream_, arguments, nullptr),
                     "cuLaunchKernel");
}

absl::Status Gpu::CopyIn(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  RETURN_IF_ERROR(MakeCurrent());
  return cuda::Check(driver_.MemcpyHtoDAsync(AddressOf(to), from, bytes, stream_),
                     "cuMemcpyHtoDAsync");
}

absl::Status Gpu::CopyOut(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  RETURN_IF_ERROR(MakeCurrent());
  return cuda::Check(driver_.MemcpyDtoHAsync(to, AddressOf(from), bytes, stream_),
                     "cuMemcpyDtoHAsync");
}

absl::Status Gpu::CopyWithin(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  RETURN_IF_ERROR(MakeCurrent());
  return cuda::Check(driver_.MemcpyDtoDAsync(AddressOf(to), AddressOf(from), bytes, stream_),
                     "cuMemcpyDtoDAsync");
}

absl::Status Gpu::Fill(void* to, unsigned char value, size_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  RETURN_IF_ERROR(MakeCurrent());
  return cuda::Check(driver_.MemsetD8Async(AddressOf(to), value, bytes, stream_),
                     "cuMemsetD8Async");
}

void Gpu::KeepUntilDone(Buffer buffer) {
  Add(std::move(buffer), nullptr);
}

void Gpu::WhenDone(Done done) {
  Add(Buffer(), std::move(done));
}

void Gpu::Add(Buffer kept, Done done) {
  const bool is_wanted = done != nullptr;
  std::vector<Mark> over;  // their buffers go outside the lock
  absl::Status status = MakeCurrent();
  {
    MutexLock lock(mutex_);
    TakeOverLocked(over);
    Mark mark{nullptr, std::move(kept), std::move(done)};
    if (status.ok()) {
      // Recorded under the lock: marks are in the order of their events.
      absl::StatusOr<cuda::Event> event = TakeEventLocked();
      status = event.status();
      if (status.ok()) {
        mark.event = *event;
        status = cuda::Check(driver_.EventRecord(mark.event, stream_), "cuEventRecord");
      }
    }
    if (status.ok()) {
      marks_.push_back(std::move(mark));
      if (is_wanted) {
        ++num_wanted_;
        num_wanted_hint_.store(num_wanted_, std::memory_order_release);
        if (waiter_sleeps_) wanted_.NotifyOne();
      }
      return;
    }
    // Without an event nobody can tell when the stream has come here: what it keeps is never freed.
    if (mark.kept) marks_.push_front({nullptr, std::move(mark.kept), nullptr});
    done = std::move(mark.done);
  }
  if (is_wanted) std::move(done)(std::move(status));
}

absl::StatusOr<cuda::Event> Gpu::TakeEventLocked() {
  if (!free_events_.empty()) {
    const cuda::Event event = free_events_.back();
    free_events_.pop_back();
    return event;
  }
  cuda::Event event = nullptr;
  RETURN_IF_ERROR(
      cuda::Check(driver_.EventCreate(&event, cuda::kEventDisableTiming | cuda::kEventBlockingSync),
                  "cuEventCreate"));
  return event;
}

void Gpu::TakeOverLocked(std::vector<Mark>& over) {
  while (!marks_.empty() && marks_.front().done == nullptr && marks_.front().event != nullptr &&
         driver_.EventQuery(marks_.front().event) != cuda::kNotReady) {
    free_events_.push_back(marks_.front().event);
    over.push_back(std::move(marks_.front()));
    marks_.pop_front();
  }
}

absl::Status Gpu::Await(cuda::Event event) const {
  const absl::Time begin = absl::Now();
  for (;;) {
    const cuda::Result result = driver_.EventQuery(event);
    if (result != cuda::kNotReady) return cuda::Check(result, "work on the GPU");
    for (int i = 0; i < 16; ++i) Pause();
    if (absl::Now() - begin > kSpin)
      return cuda::Check(driver_.EventSynchronize(event), "work on the GPU");
  }
}

void Gpu::RunWaiter() {
  pthread_setname_np(pthread_self(), "muster-gpu");
  const absl::Status current = MakeCurrent();
  for (;;) {
    const absl::Time begin = absl::Now();
    while (num_wanted_hint_.load(std::memory_order_acquire) == 0 && absl::Now() - begin < kSpin)
      Pause();
    Mark mark;
    {
      MutexLock lock(mutex_);
      waiter_sleeps_ = true;
      while (num_wanted_ == 0) wanted_.Wait(mutex_);
      waiter_sleeps_ = false;
      mark = std::move(marks_.front());
      marks_.pop_front();
      if (mark.event == nullptr) continue;
    }
    absl::Status status = current.ok() ? Await(mark.event) : current;
    mark.kept = Buffer();
    {
      MutexLock lock(mutex_);
      free_events_.push_back(mark.event);
      if (mark.done != nullptr) num_wanted_hint_.store(--num_wanted_, std::memory_order_release);
    }
    if (mark.done != nullptr) std::move(mark.done)(std::move(status));
  }
}

}  // namespace muster
