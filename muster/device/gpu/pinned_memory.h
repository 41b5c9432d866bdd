// Memory of the host that a card copies to and from by itself. Taking it from the driver is slow,
// so freed blocks are kept for reuse.
#pragma once

#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "muster/base/mutex.h"
#include "muster/tensor/buffer.h"

namespace muster {

class Gpu;

// Thread-safe.
class PinnedMemory : public Allocator {
 public:
  explicit PinnedMemory(Gpu& gpu) : gpu_(gpu) {}

  Buffer Allocate(size_t size_bytes) override;
  MemoryKind memory_kind() const override { return MemoryKind::kPinnedHost; }
  Usage usage() const override;
  std::string place() const override { return "on the host by allocator gpu_host_bfc"; }
  // Of the driver, in use or not.
  size_t taken_bytes() const;
  // Gives what nobody uses back to the driver.
  void GiveBack();

 private:
  friend class PinnedRegion;
  static constexpr int kClasses = 64;

  void* TakeLocked(int size_class) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Removes what can go back from the lists of free blocks.
  std::vector<void*> TakeUnusedLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Free(void* block, int size_class);

  Gpu& gpu_;
  mutable Mutex mutex_;
  // Blocks of a size are powers of two.
  std::array<std::vector<void*>, kClasses> free_ ABSL_GUARDED_BY(mutex_);
  size_t free_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t taken_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::set<char*> slabs_ ABSL_GUARDED_BY(mutex_);  // that small blocks are cut from
  Usage usage_ ABSL_GUARDED_BY(mutex_);
};

// Copies past the caches: the card reads from memory, and the elements would only push out others.
void CopyToPinned(char* to, const char* from, size_t bytes);

}  // namespace muster
