#include "muster/device/gpu/gpu_memory.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "muster/device/gpu/gpu.h"
#include "muster/device/running_node.h"
#include "muster/tensor/memory_guard.h"

namespace muster {
namespace {

constexpr size_t kAlignment = 256;  // of addresses: whole transactions of the memory
constexpr size_t kLargestChunk = size_t{1} << 30;
// A larger block is not cut when so little would be left.
constexpr size_t kSmallestRest = 4096;
// In the text of an error.
constexpr size_t kMostUsersNamed = 10;
// A small block is cut from the largest one while that is so many times as large.
constexpr size_t kSmall = size_t{1} << 20;
constexpr size_t kMuchLarger = 64;

size_t RoundUp(size_t bytes, size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

// As TensorFlow words it: "1.50MiB".
std::string Amount(int64_t bytes) {
  if (bytes < 1024) return absl::StrCat(bytes, "B");
  double amount = static_cast<double>(bytes);
  const char* unit = "KMGTPE";
  for (amount /= 1024; amount >= 1024 && unit[1] != 0; amount /= 1024) ++unit;
  return absl::StrFormat("%.2f%ciB", amount, *unit);
}

}  // namespace

class GpuRegion : public Region {
 public:
  GpuRegion(GpuMemory& memory, GpuMemory::Block* block)
      : Region(block->base, block->bytes, MemoryKind::kDevice), memory_(memory), block_(block) {}
  ~GpuRegion() override { memory_.Free(block_); }
  Buffer CopyOnDevice(size_t offset_bytes, size_t length_bytes) const override {
    Buffer copy = memory_.Allocate(length_bytes, block_->account);
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

Buffer GpuMemory::Allocate(size_t size_bytes, const RefPtr<GpuAccount>& account) {
  const size_t bytes = RoundUp(std::max<size_t>(size_bytes, 1), kAlignment);
  if (size_bytes <= gpu_.total_bytes()) {
    if (Buffer buffer = Hand(size_bytes, bytes, account)) return buffer;
    // Work that was added and not put on the stream yet may use chunks that are free by now, and
    // keep what is not needed later. No lock is held meanwhile: the work may look for blocks.
    if (!gpu_.Synchronize().ok()) return Buffer();
    GiveBack();
    if (Buffer buffer = Hand(size_bytes, bytes, account)) return buffer;
  }
  if (account) SetShortage(WhyNot(bytes, *account));
  return Buffer();
}

Buffer GpuMemory::Hand(size_t size_bytes, size_t bytes, const RefPtr<GpuAccount>& account) {
  const auto charged = static_cast<int64_t>(bytes);
  if (account && !account->Take(charged)) return Buffer();
  Block* block = nullptr;
  {
    MutexLock lock(mutex_);
    block = TakeLocked(bytes);
    if (block == nullptr && GrowLocked(bytes)) block = TakeLocked(bytes);
    if (block != nullptr) {
      usage_.bytes_in_use += static_cast<int64_t>(block->bytes);
      usage_.peak_bytes_in_use = std::max(usage_.peak_bytes_in_use, usage_.bytes_in_use);
      ++usage_.allocations;
      block->account = account;
      block->charged_bytes = charged;
      const std::string* const node = RunningNode::Current().node;
      const size_t length = node == nullptr ? 0 : std::min(node->size(), block->node.size() - 1);
      if (length > 0) std::memcpy(block->node.data(), node->data(), length);
      block->node[length] = 0;
    }
  }
  if (block != nullptr) return Buffer(MakeRef<GpuRegion>(*this, block), 0, size_bytes);
  if (account) account->Return(charged);
  return Buffer();
}

void GpuMemory::GiveBack() {
  MutexLock lock(mutex_);
  ShrinkLocked();
  if (chunks_.empty()) next_chunk_bytes_ = kFirstChunk;
}

std::string GpuMemory::WhyNot(size_t bytes, const GpuAccount& account) {
  const int64_t used = account.usage().bytes_in_use;
  const auto wanted = static_cast<int64_t>(bytes);
  if (wanted > account.limit_bytes() - used) {
    MutexLock lock(mutex_);
    return absl::StrCat(Amount(wanted), " more would exceed the ", Amount(account.limit_bytes()),
                        " that the device may have; in use are ", Amount(used),
                        LargestUsersLocked(&account));
  }
  size_t free = 0, total = 0;
  if (gpu_.MakeCurrent().ok()) gpu_.driver().MemGetInfo(&free, &total);
  MutexLock lock(mutex_);
  return absl::StrCat("no ", Amount(wanted), " in one piece are left; the card has ",
                      Amount(static_cast<int64_t>(free)), " free of ",
                      Amount(static_cast<int64_t>(total)), ", this process uses ",
                      Amount(usage_.bytes_in_use), LargestUsersLocked(nullptr));
}

std::string GpuMemory::LargestUsersLocked(const GpuAccount* account) const {
  std::map<std::string, int64_t> by_node;
  for (const Block* const first : chunks_) {
    for (const Block* block = first; block != nullptr; block = block->after) {
      if (block->is_free || (account != nullptr && block->account.get() != account)) continue;
      const bool has_node = block->node[0] != 0;
      by_node[has_node         ? block->node.data()
              : block->account ? "constants"
                               : "libraries"] += static_cast<int64_t>(block->bytes);
    }
  }
  std::vector<std::pair<int64_t, std::string>> largest;
  for (const auto& [node, bytes] : by_node) largest.emplace_back(-bytes, node);
  const auto shown = std::min(largest.size(), kMostUsersNamed);
  std::partial_sort(largest.begin(), largest.begin() + static_cast<int64_t>(shown), largest.end());
  std::string text;
  for (size_t i = 0; i < shown; ++i)
    absl::StrAppend(&text, i == 0 ? ": " : ", ", Amount(-largest[i].first), " by ",
                    largest[i].second);
  int64_t rest = 0;
  for (size_t i = shown; i < largest.size(); ++i) rest -= largest[i].first;
  if (rest > 0)
    absl::StrAppend(&text, ", ", Amount(rest), " by ", largest.size() - shown, " others");
  return text;
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
  if (!gpu_.MakeCurrent().ok()) return;
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
  RefPtr<GpuAccount> account;  // dropped when the lock is gone
  MutexLock lock(mutex_);
  account = std::move(block->account);
  if (account) account->Return(block->charged_bytes);
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
