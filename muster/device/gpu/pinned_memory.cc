#include "muster/device/gpu/pinned_memory.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "absl/strings/str_cat.h"

#include "muster/base/log.h"
#include "muster/device/gpu/gpu.h"
#include "muster/tensor/memory_guard.h"
#include "muster/tensor/shared_memory.h"

namespace muster {
namespace {

constexpr int kSmallestClass = 8;  // 256 bytes
constexpr int kSlabClass = 21;     // smaller blocks are cut from slabs of 2 MiB
constexpr size_t kSlabBytes = size_t{1} << kSlabClass;
constexpr size_t kMostFreeBytes = size_t{2} << 30;
constexpr size_t kPageBytes = 4096;  // the card takes whole pages

int ClassOf(size_t bytes) {
  return std::max(kSmallestClass, static_cast<int>(std::bit_width(std::max<size_t>(bytes, 1) - 1)));
}

}  // namespace

class PinnedRegion : public Region {
 public:
  PinnedRegion(PinnedMemory& memory, void* block, int size_class)
      : Region(block, size_t{1} << size_class, MemoryKind::kPinnedHost),
        memory_(memory),
        size_class_(size_class) {}
  ~PinnedRegion() override { memory_.Free(base(), size_class_); }

 private:
  PinnedMemory& memory_;
  const int size_class_;
};

void CopyToPinned(char* to, const char* from, size_t bytes) {
#if defined(__SSE2__)
  constexpr size_t kWord = 16, kLine = 64;
  const size_t head = std::min(bytes, (kLine - reinterpret_cast<uintptr_t>(to) % kLine) % kLine);
  std::memcpy(to, from, head);
  size_t at = head;
  for (; at + kLine <= bytes; at += kLine) {
    __m128i line[kLine / kWord];
    std::memcpy(line, from + at, kLine);
    for (size_t i = 0; i < kLine / kWord; ++i)
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + at) + i, line[i]);
  }
  std::memcpy(to + at, from + at, bytes - at);
  _mm_sfence();  // the card is told of it by other stores
#else
  std::memcpy(to, from, bytes);
#endif
}

Buffer PinnedMemory::Allocate(size_t size_bytes) {
  if (size_bytes > (size_t{1} << 40) || !gpu_.MakeCurrent().ok()) return Buffer();
  const int size_class = ClassOf(size_bytes);
  void* block = nullptr;
  {
    MutexLock lock(mutex_);
    block = TakeBlockLocked(size_class);
  }
  if (block == nullptr) {
    // Copies that are done by now keep blocks, and blocks of other sizes are kept for reuse.
    if (!gpu_.Synchronize().ok()) return Buffer();
    GiveBack();
    MutexLock lock(mutex_);
    block = TakeBlockLocked(size_class);
    if (block == nullptr) {
      SetShortage(absl::StrCat("the system pins no ", size_t{1} << size_class,
                               " bytes more; this process uses ", usage_.bytes_in_use));
    }
  }
  if (block == nullptr) return Buffer();
  return Buffer(MakeRef<PinnedRegion>(*this, block, size_class), 0, size_bytes);
}

void* PinnedMemory::TakeBlockLocked(int size_class) {
  const size_t bytes = size_t{1} << size_class;
  std::vector<void*>& free = free_[size_class];
  if (free.empty()) {
    const size_t taken_bytes = size_t{1} << std::max(size_class, kSlabClass);
    void* const taken = TakeLocked(taken_bytes);
    if (taken == nullptr) return nullptr;
    for (size_t at = 0; at < taken_bytes; at += bytes)
      free.push_back(static_cast<char*>(taken) + at);
    if (size_class < kSlabClass) slabs_.insert(static_cast<char*>(taken));
    free_bytes_ += taken_bytes;
  }
  void* const block = free.back();
  free.pop_back();
  free_bytes_ -= bytes;
  usage_.bytes_in_use += static_cast<int64_t>(bytes);
  usage_.peak_bytes_in_use = std::max(usage_.peak_bytes_in_use, usage_.bytes_in_use);
  ++usage_.allocations;
  return block;
}

void PinnedMemory::GiveBack() {
  if (!gpu_.MakeCurrent().ok()) return;
  MutexLock lock(mutex_);
  for (const auto& [block, bytes] : TakeUnusedLocked()) GiveBackLocked(block, bytes);
}

std::vector<std::pair<void*, size_t>> PinnedMemory::TakeUnusedLocked() {
  std::vector<std::pair<void*, size_t>> unused;
  for (int large = kSlabClass; large < kClasses; ++large) {
    const size_t bytes = size_t{1} << large;
    for (void* const block : free_[large]) unused.emplace_back(block, bytes);
    free_bytes_ -= free_[large].size() * bytes;
    free_[large].clear();
  }
  // Slabs of which all blocks are free.
  const auto slab_of = [this](void* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return *std::prev(slabs_.upper_bound(static_cast<char*>(block)));
  };
  std::map<char*, size_t> free_of_slab;
  for (int small = kSmallestClass; small < kSlabClass; ++small)
    for (void* const block : free_[small]) free_of_slab[slab_of(block)] += size_t{1} << small;
  const auto is_unused = [&](void* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return free_of_slab[slab_of(block)] == kSlabBytes;
  };
  for (int small = kSmallestClass; small < kSlabClass; ++small) {
    std::vector<void*>& free = free_[small];
    const size_t before = free.size();
    free.erase(std::remove_if(free.begin(), free.end(), is_unused), free.end());
    free_bytes_ -= (before - free.size()) << small;
  }
  for (const auto& [slab, free_bytes] : free_of_slab) {
    if (free_bytes != kSlabBytes) continue;
    unused.emplace_back(slab, kSlabBytes);
    slabs_.erase(slab);
  }
  return unused;
}

void* PinnedMemory::TakeLocked(size_t bytes) {
  if (SharesLargeBuffers() && !cannot_register_) {
    if (void* const shared = TakeSharedLocked(bytes)) return shared;
  }
  void* taken = nullptr;
  const bool is_taken = gpu_.driver().MemHostAlloc(&taken, bytes, cuda::kHostPortable) == 0;
  return is_taken ? taken : nullptr;
}

void* PinnedMemory::TakeSharedLocked(size_t bytes) {
  void* const block = SharedMemory::Global().Allocate(bytes + kPageBytes);
  if (block == nullptr) return nullptr;
  const uintptr_t first =
      (reinterpret_cast<uintptr_t>(block) + kPageBytes - 1) / kPageBytes * kPageBytes;
  void* const taken = reinterpret_cast<void*>(first);
  const absl::Status status = cuda::Check(
      gpu_.driver().MemHostRegister(taken, bytes, cuda::kRegisterPortable), "cuMemHostRegister");
  if (!status.ok()) {
    LOG(INFO) << "values from the GPU are copied on their way to other tasks: " << status.message();
    cannot_register_ = true;
    SharedMemory::Global().Free(block, bytes + kPageBytes);
    return nullptr;
  }
  shared_.emplace(taken, block);
  return taken;
}

void PinnedMemory::GiveBackLocked(void* block, size_t bytes) {
  const auto shared = shared_.find(block);
  if (shared == shared_.end()) {
    gpu_.driver().MemFreeHost(block);
    return;
  }
  gpu_.driver().MemHostUnregister(block);
  SharedMemory::Global().Free(shared->second, bytes + kPageBytes);
  shared_.erase(shared);
}

Allocator::Usage PinnedMemory::usage() const {
  MutexLock lock(mutex_);
  return usage_;
}

void PinnedMemory::Free(void* block, int size_class) {
  const size_t bytes = size_t{1} << size_class;
  MutexLock lock(mutex_);
  usage_.bytes_in_use -= static_cast<int64_t>(bytes);
  const bool is_kept = size_class < kSlabClass || free_bytes_ + bytes <= kMostFreeBytes;
  if (is_kept || !gpu_.MakeCurrent().ok()) {
    free_[size_class].push_back(block);
    free_bytes_ += bytes;
  } else {
    GiveBackLocked(block, bytes);
  }
}

}  // namespace muster
