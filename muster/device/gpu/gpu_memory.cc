#include "muster/device/gpu/gpu_memory.h"

#include <algorithm>
#include <iterator>

#include "muster/device/gpu/gpu.h"

namespace muster {
namespace {

constexpr size_t kAlignment = 256;  // of addresses: whole transactions of the memory
constexpr size_t kLargestChunk = size_t{1} << 30;
// A larger block is not cut when so little would be left.
constexpr size_t kSmallestRest = 4096;
// A small block is cut from the largest one while that is so many times as large.
constexpr size_t kSmall = size_t{1} << 20;
constexpr size_t kMuchLarger = 64;

size_t RoundUp(size_t bytes, size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

class GpuRegion : public Region {
 public:
  GpuRegion(GpuMemory& memory, GpuMemory::Block* block)
      : Region(block->base, block->bytes, MemoryKind::kDevice), memory_(memory), block_(block) {}
  ~GpuRegion() override { memory_.Free(block_); }
  Buffer CopyOnDevice(size_t offset_bytes, size_t length_bytes) const override {
    Buffer copy = memory_.Allocate(length_bytes);
    const char* const from = static_cast<const char*>(base()) + offset_bytes;
    if (!copy || !memory_.gpu_.CopyWithin(copy.data(), from, length_bytes).ok()) return Buffer();
    return copy;
  }

 private:
  GpuMemory& memory_;
  GpuMemory::Block* const block_;
};

void GpuMemory::Limit(size_t bytes) {
  MutexLock lock(mutex_);
  limit_bytes_ = bytes;
}

Buffer GpuMemory::Allocate(size_t size_bytes) {
  if (size_bytes > gpu_.total_bytes()) return Buffer();
  const size_t bytes = RoundUp(std::max<size_t>(size_bytes, 1), kAlignment);
  const auto take = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    Block* const block = TakeLocked(bytes);
    if (block == nullptr) return block;
    usage_.bytes_in_use += static_cast<int64_t>(block->bytes);
    usage_.peak_bytes_in_use = std::max(usage_.peak_bytes_in_use, usage_.bytes_in_use);
    ++usage_.allocations;
    return block;
  };
  Block* block = nullptr;
  {
    MutexLock lock(mutex_);
    block = take();
    if (block == nullptr && GrowLocked(bytes)) block = take();
  }
  if (block == nullptr) {
    // Work that was added and not put on the stream yet may use chunks that are free by now. No
    // lock is held meanwhile: the work may look for blocks.
    if (!gpu_.Synchronize().ok()) return Buffer();
    MutexLock lock(mutex_);
    ShrinkLocked();
    block = take();
    if (block == nullptr && GrowLocked(bytes)) block = take();
  }
  if (block == nullptr) return Buffer();
  return Buffer(MakeRef<GpuRegion>(*this, block), 0, size_bytes);
}

Allocator::Usage GpuMemory::usage() const {
  MutexLock lock(mutex_);
  return usage_;
}

size_t GpuMemory::taken_bytes() const {
  MutexLock lock(mutex_);
  return taken_bytes_;
}

// The smallest free block that is large enough; what it has beyond `bytes` stays free. Small blocks
// rather do not take the place of those that were freed just before: calls that use the same memory
// cannot be computed together (GpuRewriter).
GpuMemory::Block* GpuMemory::TakeLocked(size_t bytes) {
  Block wanted;
  wanted.bytes = bytes;
  auto found = free_.lower_bound(&wanted);
  if (found == free_.end()) return nullptr;
  const auto largest = std::prev(free_.end());
  if (bytes <= kSmall && (*largest)->bytes / kMuchLarger >= bytes) found = largest;
  Block* const block = *found;
  free_.erase(found);
  block->is_free = false;
  if (block->bytes - bytes >= kSmallestRest) {
    auto rest = std::make_unique<Block>();
    rest->base = block->base + bytes;
    rest->bytes = block->bytes - bytes;
    rest->before = block;
    rest->after = block->after;
    if (rest->after != nullptr) rest->after->before = rest.get();
    block->bytes = bytes;
    block->after = rest.get();
    free_.insert(rest.release());
  }
  return block;
}

bool GpuMemory::TakeChunkLocked(size_t bytes) {
  if (bytes > limit_bytes_ - std::min(limit_bytes_, taken_bytes_)) return false;
  cuda::Address address = 0;
  if (gpu_.driver().MemAlloc(&address, bytes) != 0) return false;
  auto block = std::make_unique<Block>();
  block->base = reinterpret_cast<char*>(address);
  block->bytes = bytes;
  chunks_.insert(block.get());
  free_.insert(block.release());
  taken_bytes_ += bytes;
  return true;
}

bool GpuMemory::GrowLocked(size_t bytes) {
  if (!gpu_.MakeCurrent().ok()) return false;
  const size_t least = RoundUp(bytes, size_t{2} << 20);
  const size_t wanted = std::max(least, next_chunk_bytes_);
  next_chunk_bytes_ = std::min(2 * next_chunk_bytes_, kLargestChunk);
  return TakeChunkLocked(wanted) || TakeChunkLocked(least);
}

void GpuMemory::ShrinkLocked() {
  for (auto at = free_.begin(); at != free_.end();) {
    Block* const block = *at;
    if (block->before != nullptr || block->after != nullptr) {
      ++at;
      continue;
    }
    at = free_.erase(at);
    chunks_.erase(block);
    taken_bytes_ -= block->bytes;
    gpu_.driver().MemFree(reinterpret_cast<cuda::Address>(block->base));
    delete block;
  }
}

std::vector<GpuRange> GpuMemory::BlocksInUse() const {
  MutexLock lock(mutex_);
  std::vector<GpuRange> blocks;
  for (const Block* const first : chunks_) {
    for (const Block* block = first; block != nullptr; block = block->after)
      if (!block->is_free) blocks.push_back({block->base, block->base + block->bytes});
  }
  return blocks;
}

void GpuMemory::Free(Block* block) {
  gpu_.NoteFree(block->base, block->bytes);
  MutexLock lock(mutex_);
  usage_.bytes_in_use -= static_cast<int64_t>(block->bytes);
  block->is_free = true;
  if (Block* const next = block->after; next != nullptr && next->is_free) {
    free_.erase(next);
    block->bytes += next->bytes;
    block->after = next->after;
    if (block->after != nullptr) block->after->before = block;
    delete next;
  }
  if (Block* const last = block->before; last != nullptr && last->is_free) {
    free_.erase(last);
    last->bytes += block->bytes;
    last->after = block->after;
    if (last->after != nullptr) last->after->before = last;
    delete block;
    block = last;
  }
  free_.insert(block);
}

}  // namespace muster
