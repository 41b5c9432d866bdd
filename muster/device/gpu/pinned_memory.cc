#include "muster/device/gpu/pinned_memory.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "muster/device/gpu/gpu.h"

namespace muster {
namespace {

constexpr int kSmallestClass = 8;  // 256 bytes
constexpr int kSlabClass = 21;     // smaller blocks are cut from slabs of 2 MiB
constexpr size_t kMostFreeBytes = size_t{2} << 30;

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
    std::vector<void*>& free = free_[size_class];
    if (free.empty()) {
      const int taken_class = std::max(size_class, kSlabClass);
      void* taken = nullptr;
      if (gpu_.driver().MemHostAlloc(&taken, size_t{1} << taken_class, cuda::kHostPortable) != 0)
        return Buffer();
      for (size_t at = 0; at < (size_t{1} << taken_class); at += size_t{1} << size_class)
        free.push_back(static_cast<char*>(taken) + at);
      free_bytes_ += size_t{1} << taken_class;
    }
    block = free.back();
    free.pop_back();
    free_bytes_ -= size_t{1} << size_class;
    usage_.bytes_in_use += int64_t{1} << size_class;
    usage_.peak_bytes_in_use = std::max(usage_.peak_bytes_in_use, usage_.bytes_in_use);
    ++usage_.allocations;
  }
  return Buffer(MakeRef<PinnedRegion>(*this, block, size_class), 0, size_bytes);
}

Allocator::Usage PinnedMemory::usage() const {
  MutexLock lock(mutex_);
  return usage_;
}

void PinnedMemory::Free(void* block, int size_class) {
  bool is_kept = true;
  {
    MutexLock lock(mutex_);
    const size_t bytes = size_t{1} << size_class;
    usage_.bytes_in_use -= static_cast<int64_t>(bytes);
    is_kept = size_class < kSlabClass || free_bytes_ + bytes <= kMostFreeBytes;
    if (is_kept) {
      free_[size_class].push_back(block);
      free_bytes_ += bytes;
    }
  }
  if (!is_kept && gpu_.MakeCurrent().ok()) gpu_.driver().MemFreeHost(block);
}

}  // namespace muster
