#include "muster/tensor/memory_guard.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include <sys/mman.h>

namespace muster {
namespace {

// So much is taken between two looks at the system.
constexpr int64_t kCreditBytes = int64_t{32} << 20;
constexpr size_t kPageBytes = 4096;
constexpr size_t kSampledPages = 64;

// Beside tensors a process needs memory for what it receives and for what it keeps track of.
int64_t Reserve(int64_t limit_bytes) {
  return std::clamp<int64_t>(limit_bytes / 64, int64_t{16} << 20, int64_t{256} << 20) +
         kCreditBytes;
}

// How much of a block has no pages, from a few places in it.
int64_t UntouchedBytes(const void* base, size_t bytes) {
  const auto begin = (reinterpret_cast<uintptr_t>(base) + kPageBytes - 1) & ~(kPageBytes - 1);
  const size_t pages = bytes / kPageBytes - 1;
  int64_t missing = 0;
  for (size_t i = 0; i < kSampledPages; ++i) {
    // The middle of the i-th of as many equal parts.
    const size_t page = pages * (2 * i + 1) / (2 * kSampledPages);
    unsigned char is_there = 0;
    if (mincore(reinterpret_cast<void*>(begin + page * kPageBytes), kPageBytes, &is_there) != 0 ||
        (is_there & 1) == 0)
      ++missing;
  }
  return static_cast<int64_t>(bytes / kSampledPages) * missing;
}

std::string& Shortage() {
  thread_local std::string text;
  return text;
}

}  // namespace

std::string TakeShortage() {
  return std::exchange(Shortage(), "");
}

MemoryGuard& MemoryGuard::Global() {
  static auto* guard = new MemoryGuard([system = SystemMemory()] { return system.Available(); });
  return *guard;
}

bool MemoryGuard::TakeFromLimit(int64_t bytes, absl::FunctionRef<void()> give_back) {
  const auto exceeds_limit = [&] { return held_bytes() > limit_bytes(); };
  held_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  if (!exceeds_limit()) return true;
  give_back();
  if (!exceeds_limit()) return true;
  held_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
  Shortage() = absl::StrCat("the tensors of this process may take ", limit_bytes(),
                            " bytes and have ", held_bytes());
  return false;
}

bool MemoryGuard::Adopt(size_t bytes, absl::FunctionRef<void()> give_back) {
  return TakeFromLimit(static_cast<int64_t>(bytes), give_back);
}

bool MemoryGuard::Take(size_t bytes, absl::FunctionRef<void()> give_back) {
  const auto wanted = static_cast<int64_t>(bytes);
  if (!TakeFromLimit(wanted, give_back)) return false;
  if (bytes < kLargeBytes && TakeCredit(wanted)) return true;
  if (TakeFromSystem(wanted, /*is_last=*/false)) return true;
  give_back();
  if (TakeFromSystem(wanted, /*is_last=*/true)) return true;
  held_bytes_.fetch_sub(wanted, std::memory_order_relaxed);
  return false;
}

void MemoryGuard::TakeAnyway(size_t bytes) {
  held_bytes_.fetch_add(static_cast<int64_t>(bytes), std::memory_order_relaxed);
  credit_.fetch_sub(static_cast<int64_t>(bytes), std::memory_order_relaxed);
  if (bytes < kLargeBytes) return;
  MutexLock lock(mutex_);
  promised_ += static_cast<int64_t>(bytes);
}

bool MemoryGuard::TakeCredit(int64_t bytes) {
  int64_t credit = credit_.load(std::memory_order_relaxed);
  while (credit >= bytes) {
    if (credit_.compare_exchange_weak(credit, credit - bytes, std::memory_order_relaxed))
      return true;
  }
  return false;
}

bool MemoryGuard::TakeFromSystem(int64_t bytes, bool is_last) {
  const bool is_large = bytes >= static_cast<int64_t>(kLargeBytes);
  MutexLock lock(mutex_);
  // Another thread may have looked meanwhile.
  if (!is_large && TakeCredit(bytes)) return true;
  const SystemMemory::Room room = look_();
  const int64_t left =
      room.available_bytes - Reserve(room.limit_bytes) - promised_ - UntouchedLocked();
  if (bytes > left) {
    if (is_last) {
      Shortage() = absl::StrCat(room.holder, " has ", std::max<int64_t>(left, 0), " bytes left of ",
                                room.limit_bytes);
    }
    return false;
  }
  if (is_large) promised_ += bytes;
  credit_.store(std::min(kCreditBytes, left - bytes), std::memory_order_relaxed);
  return true;
}

int64_t MemoryGuard::UntouchedLocked() {
  int64_t all = 0;
  for (auto block = young_.begin(); block != young_.end();) {
    const int64_t untouched = UntouchedBytes(block->first, block->second);
    all += untouched;
    block = untouched == 0 ? young_.erase(block) : std::next(block);
  }
  return all;
}

void MemoryGuard::Placed(const void* base, size_t bytes) {
  if (bytes < kLargeBytes) return;
  MutexLock lock(mutex_);
  promised_ -= static_cast<int64_t>(bytes);
  young_.emplace(base, bytes);
}

void MemoryGuard::Return(const void* base, size_t bytes) {
  held_bytes_.fetch_sub(static_cast<int64_t>(bytes), std::memory_order_relaxed);
  if (bytes < kLargeBytes) return;
  MutexLock lock(mutex_);
  if (base == nullptr) {
    promised_ -= static_cast<int64_t>(bytes);
  } else {
    young_.erase(base);
  }
}

bool MemoryAccount::Take(size_t bytes) {
  const auto wanted = static_cast<int64_t>(bytes);
  const int64_t used = used_bytes_.fetch_add(wanted, std::memory_order_relaxed) + wanted;
  if (used <= limit_bytes_) return true;
  used_bytes_.fetch_sub(wanted, std::memory_order_relaxed);
  Shortage() = absl::StrCat("the tensors of ", owner_, " may take ", limit_bytes_,
                            " bytes and have ", used - wanted);
  return false;
}

}  // namespace muster
