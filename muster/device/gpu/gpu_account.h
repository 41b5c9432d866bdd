// What one device of a session has of a card's memory. Several devices may share a card, those of
// other sessions among them; each has a limit of its own.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "muster/tensor/memory_place.h"

namespace muster {

class GpuMemory;

// Thread-safe. Lives as long as the memory that is charged to it.
class GpuAccount : public RefCounted {
 public:
  // `device` is its full name, `number` that of the device: TensorFlow's allocators are called so.
  GpuAccount(std::string device, int number, int64_t limit_bytes);

  const std::string& device() const { return device_; }
  const std::string& allocator() const { return allocator_; }  // "GPU_0_bfc"
  int64_t limit_bytes() const { return limit_bytes_; }
  bool Take(int64_t bytes);
  void Return(int64_t bytes);
  Allocator::Usage usage() const;

 private:
  const std::string device_;
  const std::string allocator_;
  const int64_t limit_bytes_;
  std::atomic<int64_t> used_bytes_{0}, peak_bytes_{0}, allocations_{0};
};

// The memory of a card as one device has it. Thread-safe.
class GpuAllocator : public PlacedAllocator {
 public:
  GpuAllocator(GpuMemory& memory, RefPtr<GpuAccount> account)
      : memory_(memory), account_(std::move(account)) {}
  Buffer Allocate(size_t size_bytes) override;
  MemoryKind memory_kind() const override { return MemoryKind::kDevice; }
  Usage usage() const override { return account_->usage(); }
  std::string place() const override;

 private:
  GpuMemory& memory_;
  const RefPtr<GpuAccount> account_;
};

}  // namespace muster
