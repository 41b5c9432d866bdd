// The memory of a card: taken from the driver in large chunks, handed out in blocks and kept for
// reuse. A freed block may be handed out again at once, since all work of the card is in one order.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "muster/base/mutex.h"
#include "muster/device/gpu/gpu_account.h"
#include "muster/device/gpu/gpu_rewriter.h"
#include "muster/tensor/buffer.h"

namespace muster {

class Gpu;

// Thread-safe.
class GpuMemory : public Allocator {
 public:
  explicit GpuMemory(Gpu& gpu) : gpu_(gpu) {}

  // At most this many bytes are taken from the driver.
  void Limit(size_t bytes);
  // For the process, such as what libraries compute in.
  Buffer Allocate(size_t size_bytes) override { return Allocate(size_bytes, nullptr); }
  // Charged to `account`. Where memory runs out, the shortage (tensor/memory_guard.h) says which
  // nodes have most of it.
  Buffer Allocate(size_t size_bytes, const RefPtr<GpuAccount>& account);
  // Gives chunks of which nothing is in use back to the driver. Requires: no work waits that uses
  // them.
  void GiveBack();
  MemoryKind memory_kind() const override { return MemoryKind::kDevice; }
  Usage usage() const override;
  // What is held of the driver, in use or not.
  size_t taken_bytes() const;
  std::vector<GpuRange> BlocksInUse() const;

 private:
  friend class GpuRegion;
  // A part of a chunk. Neighbours in memory are linked; free ones are merged.
  struct Block {
    char* base = nullptr;
    size_t bytes = 0;
    bool is_free = true;
    RefPtr<GpuAccount> account;  // of what is in use; null: the process's
    int64_t charged_bytes = 0;
    std::array<char, 64> node{};  // the node that took it, or the beginning of its name
    Block* before = nullptr;
    Block* after = nullptr;
  };
  static constexpr size_t kFirstChunk = size_t{8} << 20;
  struct BySize {
    bool operator()(const Block* a, const Block* b) const {
      return a->bytes != b->bytes ? a->bytes < b->bytes : a->base < b->base;
    }
  };

  Buffer Hand(size_t size_bytes, size_t bytes, const RefPtr<GpuAccount>& account);
  // Why there are not `bytes` more for the account, or on the card.
  std::string WhyNot(size_t bytes, const GpuAccount& account);
  std::string LargestUsersLocked(const GpuAccount* account) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Block* TakeLocked(size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Takes a chunk of so many bytes from the driver.
  bool TakeChunkLocked(size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool GrowLocked(size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ShrinkLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Free(Block* block);

  Gpu& gpu_;
  mutable Mutex mutex_;
  std::set<Block*, BySize> free_ ABSL_GUARDED_BY(mutex_);
  std::set<Block*> chunks_ ABSL_GUARDED_BY(mutex_);  // the first block of each
  size_t limit_bytes_ ABSL_GUARDED_BY(mutex_) = SIZE_MAX;
  size_t taken_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t next_chunk_bytes_ ABSL_GUARDED_BY(mutex_) = kFirstChunk;
  Usage usage_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster
