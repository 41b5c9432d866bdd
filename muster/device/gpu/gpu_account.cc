#include "muster/device/gpu/gpu_account.h"

#include "absl/strings/str_cat.h"

#include "muster/device/gpu/gpu_memory.h"

namespace muster {

GpuAccount::GpuAccount(std::string device, int number, int64_t limit_bytes)
    : device_(std::move(device)),
      allocator_(absl::StrCat("GPU_", number, "_bfc")),
      limit_bytes_(limit_bytes) {}

bool GpuAccount::Take(int64_t bytes) {
  const int64_t used = used_bytes_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  if (used > limit_bytes_) {
    used_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
    return false;
  }
  int64_t peak = peak_bytes_.load(std::memory_order_relaxed);
  while (used > peak && !peak_bytes_.compare_exchange_weak(peak, used, std::memory_order_relaxed)) {
  }
  allocations_.fetch_add(1, std::memory_order_relaxed);
  return true;
}

void GpuAccount::Return(int64_t bytes) {
  used_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
}

Allocator::Usage GpuAccount::usage() const {
  return {used_bytes_.load(std::memory_order_relaxed), peak_bytes_.load(std::memory_order_relaxed),
          allocations_.load(std::memory_order_relaxed)};
}

Buffer GpuAllocator::Allocate(size_t size_bytes) {
  return memory_.Allocate(size_bytes, account_);
}

std::string GpuAllocator::place() const {
  return absl::StrCat("on ", account_->device(), " by allocator ", account_->allocator());
}

}  // namespace muster
