// Memory of the host that a card copies to and from by itself. Taking it from the driver is slow,
// so freed blocks are kept for reuse. In a process whose large tensors other processes of the
// machine read in place it is a part of SharedMemory: what the card has put there goes to a peer
// without a copy.
#pragma once

#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"

#include "muster/base/mutex.h"
#include "muster/tensor/memory_place.h"

namespace muster {

class Gpu;

// Thread-safe.
class PinnedMemory : public PlacedAllocator {
 public:
  explicit PinnedMemory(Gpu& gpu) : gpu_(gpu) {}

  Buffer Allocate(size_t size_bytes) override;
  MemoryKind memory_kind() const override { return MemoryKind::kPinnedHost; }
  Usage usage() const override;
  std::string place() const override { return "on the host by allocator gpu_host_bfc"; }
  // Gives what nobody uses back to the driver.
  void GiveBack();

 private:
  friend class PinnedRegion;
  static constexpr int kClasses = 64;

  // A block of a size; null where there is no memory.
  void* TakeBlockLocked(int size_class) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Removes what can go back, with its size, from the lists of free blocks.
  std::vector<std::pair<void*, size_t>> TakeUnusedLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Memory of the system that the card may use; null where there is none.
  void* TakeLocked(size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void* TakeSharedLocked(size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void GiveBackLocked(void* block, size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Free(void* block, int size_class);

  Gpu& gpu_;
  mutable Mutex mutex_;
  // Blocks of a size are powers of two.
  std::array<std::vector<void*>, kClasses> free_ ABSL_GUARDED_BY(mutex_);
  size_t free_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::set<char*> slabs_ ABSL_GUARDED_BY(mutex_);  // that small blocks are cut from
  // Blocks of SharedMemory, by where the card's part of them begins.
  absl::flat_hash_map<void*, void*> shared_ ABSL_GUARDED_BY(mutex_);
  bool cannot_register_ ABSL_GUARDED_BY(mutex_) = false;
  Usage usage_ ABSL_GUARDED_BY(mutex_);
};

// Copies past the caches: the card reads from memory, and the elements would only push out others.
void CopyToPinned(char* to, const char* from, size_t bytes);

}  // namespace muster
