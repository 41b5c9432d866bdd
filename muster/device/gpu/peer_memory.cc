#include "muster/device/gpu/peer_memory.h"

#include "muster/base/log.h"
#include "muster/device/gpu/gpu.h"

namespace muster {
namespace {

constexpr unsigned kRegisterReadOnly = 8;  // CU_MEMHOSTREGISTER_READ_ONLY

}  // namespace

PeerMemory& PeerMemory::Global() {
  static auto* const memory = new PeerMemory;
  return *memory;
}

void PeerMemory::Start(const Gpu& gpu) {
  {
    MutexLock lock(mutex_);
    gpu_ = &gpu;
  }
  MappingReader::Set(this);
}

bool PeerMemory::Has(const char* data, size_t bytes) const {
  MutexLock lock(mutex_);
  auto after = segments_.upper_bound(data);
  if (after == segments_.begin()) return false;
  --after;
  const auto offset = static_cast<size_t>(data - after->first);
  return offset <= after->second && bytes <= after->second - offset;
}

bool PeerMemory::Begin(const char* data, size_t size_bytes) {
  const Gpu* gpu = nullptr;
  {
    MutexLock lock(mutex_);
    gpu = gpu_;
  }
  absl::Status status = gpu->MakeCurrent();
  if (status.ok()) {
    status = cuda::Check(gpu->driver().MemHostRegister(const_cast<char*>(data), size_bytes,
                                                       cuda::kRegisterPortable | kRegisterReadOnly),
                         "cuMemHostRegister");
  }
  if (!status.ok()) {
    LOG(INFO) << "values of other tasks are copied on their way to the GPU: " << status.message();
    return false;
  }
  MutexLock lock(mutex_);
  segments_.emplace(data, size_bytes);
  return true;
}

void PeerMemory::End(const char* data) {
  const Gpu* gpu = nullptr;
  {
    MutexLock lock(mutex_);
    segments_.erase(data);
    gpu = gpu_;
  }
  if (gpu->MakeCurrent().ok()) gpu->driver().MemHostUnregister(const_cast<char*>(data));
}

}  // namespace muster
