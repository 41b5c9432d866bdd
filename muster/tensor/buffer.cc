#include "muster/tensor/buffer.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <new>

#include <malloc.h>
#include <sys/mman.h>

#include "muster/base/address_sanitizer.h"
#include "muster/base/mutex.h"
#include "muster/tensor/memory_guard.h"
#include "muster/tensor/shared_memory.h"
#include "muster/tensor/unused_memory.h"

namespace muster {
namespace {

std::atomic<bool> share_buffers{false};

class ExternalRegion : public Region {
 public:
  ExternalRegion(const void* base, size_t size_bytes, absl::AnyInvocable<void() &&> release)
      : Region(const_cast<void*>(base), size_bytes, MemoryKind::kHost),
        release_(std::move(release)) {
    writable_ = false;
  }
  ~ExternalRegion() override { std::move(release_)(); }

 private:
  absl::AnyInvocable<void() &&> release_;
};

class CachingAllocator;

// Under the address sanitizer every block is its own and exactly as long as it was asked for, so
// that a read past the end or after the block was freed is detected.
constexpr bool kExactBlocks = kHasAddressSanitizer;

// Header and elements share one block: the header fills the first cache line, elements follow at an
// aligned address.
class HeapRegion : public Region {
 public:
  HeapRegion(void* base, size_t size_bytes, int size_class, MemoryKind kind,
             RefPtr<MemoryAccount> account)
      : Region(base, size_bytes, kind), size_class_(size_class), account_(std::move(account)) {}
  void Destroy() override;
  int size_class() const { return size_class_; }
  MemoryAccount* account() const { return account_.get(); }

 private:
  int size_class_;
  RefPtr<MemoryAccount> account_;  // null: no account
};
constexpr size_t kHeader = kBufferAlignment;

// Blocks that cover whole huge pages may be backed by one page instead of hundreds.
constexpr size_t kHugePageBytes = size_t{2} << 20;
constexpr size_t kHugeFromBytes = 2 * kHugePageBytes;

void UseHugePages(void* block, size_t bytes) {
  const auto begin =
      (reinterpret_cast<uintptr_t>(block) + kHugePageBytes - 1) & ~(kHugePageBytes - 1);
  const auto end = (reinterpret_cast<uintptr_t>(block) + bytes) & ~(kHugePageBytes - 1);
  // A hint only: nothing depends on it.
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
}

static_assert(sizeof(HeapRegion) <= kHeader);

// Blocks come in sizes of a power of two and the three quarters between; freed ones wait in a list
// per size, so that a training loop soon stops asking the system for memory (and stops paying for
// page faults).
class CachingAllocator : public Allocator {
 public:
  Buffer Allocate(size_t size_bytes) override {
    const int size_class = ClassOf(size_bytes);
    if (size_class < 0) return Buffer();
    const size_t block_bytes = ClassBytes(size_class);
    MemoryAccount* const account = MemoryAccount::Current();
    if (account != nullptr) {
      if (MustHaveMemory::is_on()) {
        account->TakeAnyway(block_bytes);
      } else if (!account->Take(block_bytes)) {
        return Buffer();
      }
    }
    if (block_bytes >= kLargeUseBytes) NoteLargeUse();
    MemoryKind kind =
        size_bytes >= kSharedTogetherFromBytes && share_buffers.load(std::memory_order_relaxed)
            ? MemoryKind::kSharedHost
            : MemoryKind::kHost;
    void* block = kExactBlocks ? nullptr : TakeCached(size_class, kind);
    if (block == nullptr) {
      block = TakeFresh(kHeader + (kExactBlocks ? size_bytes : block_bytes), kind);
      if (block == nullptr) {
        if (account != nullptr) account->Return(block_bytes);
        return Buffer();
      }
    }
    Count(static_cast<int64_t>(block_bytes));
    auto* region = new (block)
        HeapRegion(static_cast<char*>(block) + kHeader, kExactBlocks ? size_bytes : block_bytes,
                   size_class, kind, RefPtr<MemoryAccount>::Share(account));
    return Buffer(RefPtr<Region>::Adopt(region), 0, size_bytes);
  }
  MemoryKind memory_kind() const override { return MemoryKind::kHost; }
  Usage usage() const override {
    return Usage{in_use_.load(std::memory_order_relaxed), peak_.load(std::memory_order_relaxed),
                 allocations_.load(std::memory_order_relaxed)};
  }

  void Free(HeapRegion* region) {
    const int size_class = region->size_class();
    const size_t block_bytes = ClassBytes(size_class);
    const MemoryKind kind = region->kind();
    const size_t taken_bytes = kHeader + region->size_bytes();
    in_use_.fetch_sub(static_cast<int64_t>(block_bytes), std::memory_order_relaxed);
    if (region->account() != nullptr) region->account()->Return(block_bytes);
    if (block_bytes >= kLargeUseBytes) NoteLargeUse();
    region->~HeapRegion();
    void* block = region;
    if (!kExactBlocks &&
        cached_bytes_.load(std::memory_order_relaxed) + block_bytes <= kMaxCachedBytes) {
      List& list = Lists(kind)[size_class];
      MutexLock lock(list.mutex);
      if (list.length < MaxListLength(block_bytes)) {
        *static_cast<void**>(block) = list.head;
        list.head = block;
        ++list.length;
        cached_bytes_.fetch_add(block_bytes, std::memory_order_relaxed);
        return;
      }
    }
    GiveBack(block, taken_bytes, kind);
  }

  // Gives free blocks of `least_bytes` and more back to the system.
  void ReleaseCached(size_t least_bytes) {
    for (const MemoryKind kind : {MemoryKind::kHost, MemoryKind::kSharedHost}) {
      for (int size_class = ClassOf(least_bytes); size_class < kClasses; ++size_class) {
        while (void* const block = TakeCached(size_class, kind))
          GiveBack(block, kHeader + ClassBytes(size_class), kind);
      }
    }
  }

 private:
  // Memory of the system; null when there is none or the limits allow none. `kind` is the wanted
  // kind, and on return the kind that it has.
  void* TakeFresh(size_t bytes, MemoryKind& kind) {
    const auto place = [bytes, &kind]() -> void* {
      void* block = nullptr;
      if (kind == MemoryKind::kSharedHost) block = SharedMemory::Global().Allocate(bytes);
      if (block != nullptr) return block;
      kind = MemoryKind::kHost;
      if (posix_memalign(&block, kBufferAlignment, bytes) != 0) return nullptr;
      if (bytes >= kHugeFromBytes) UseHugePages(block, bytes);
      return block;
    };
    MemoryGuard& guard = MemoryGuard::Global();
    return MustHaveMemory::is_on() ? guard.TakeAnyway(bytes, place)
                                   : guard.Take(
                                         bytes, [this] { ReleaseCached(0); }, place);
  }

  static void GiveBack(void* block, size_t bytes, MemoryKind kind) {
    MemoryGuard::Global().Return(block, bytes);
    if (kind == MemoryKind::kSharedHost) {
      SharedMemory::Global().Free(block, bytes);
    } else {
      std::free(block);
    }
  }

  static constexpr int kClasses = 4 * 36;
  // A few large tensors: for them, page faults cost more than the work on their elements.
  static constexpr size_t kMaxCachedBytes = size_t{256} << 20;
  static constexpr size_t kMinListLength = 256;
  // A graph of thousands of small nodes holds as many small tensors.
  static constexpr size_t kSmallListBytes = size_t{1} << 20;

  struct List {
    Mutex mutex;
    void* head ABSL_GUARDED_BY(mutex) = nullptr;
    size_t length ABSL_GUARDED_BY(mutex) = 0;
  };

  static size_t MaxListLength(size_t block_bytes) {
    return std::max(kMinListLength, kSmallListBytes / (kHeader + block_bytes));
  }

  // Class 4k+j holds 64 * 2^k * (4+j)/4 bytes.
  static size_t ClassBytes(int size_class) {
    return (kBufferAlignment << (size_class / 4)) / 4 * (4 + size_class % 4);
  }
  static int ClassOf(size_t size_bytes) {
    if (size_bytes <= kBufferAlignment) return 0;
    if (size_bytes > (size_t{1} << 40)) return -1;
    const int power = std::bit_width(size_bytes - 1) - 1;  // 2^power < size_bytes <= 2^(power+1)
    const int octave = power - 6;
    const size_t step = (size_t{1} << power) / 4;
    const auto quarter = static_cast<int>((size_bytes - (size_t{1} << power) + step - 1) / step);
    const int size_class = 4 * octave + quarter;
    // Blocks must keep whole cache lines so that aligned_alloc accepts the size.
    return ClassBytes(size_class) % kBufferAlignment == 0 ? size_class : 4 * (octave + 1);
  }

  std::array<List, kClasses>& Lists(MemoryKind kind) {
    return kind == MemoryKind::kSharedHost ? shared_lists_ : lists_;
  }

  void* TakeCached(int size_class, MemoryKind kind) {
    List& list = Lists(kind)[size_class];
    MutexLock lock(list.mutex);
    void* block = list.head;
    if (block == nullptr) return nullptr;
    list.head = *static_cast<void**>(block);
    --list.length;
    cached_bytes_.fetch_sub(ClassBytes(size_class), std::memory_order_relaxed);
    return block;
  }

  void Count(int64_t block_bytes) {
    allocations_.fetch_add(1, std::memory_order_relaxed);
    const int64_t now = in_use_.fetch_add(block_bytes, std::memory_order_relaxed) + block_bytes;
    int64_t peak = peak_.load(std::memory_order_relaxed);
    while (now > peak && !peak_.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
    }
  }

  std::array<List, kClasses> lists_;
  std::array<List, kClasses> shared_lists_;
  std::atomic<size_t> cached_bytes_{0};
  std::atomic<int64_t> in_use_{0};
  std::atomic<int64_t> peak_{0};
  std::atomic<int64_t> allocations_{0};
};

// Never destroyed: tensors in static storage may outlive every static destructor.
CachingAllocator& TheAllocator() {
  static auto* allocator = new CachingAllocator;
  return *allocator;
}

void HeapRegion::Destroy() {
  TheAllocator().Free(this);
}

}  // namespace

Buffer Region::CopyOnDevice(size_t, size_t) const {
  return Buffer();
}

Buffer Buffer::AdoptExternal(const void* base, size_t length_bytes,
                             absl::AnyInvocable<void() &&> release) {
  return Buffer(MakeRef<ExternalRegion>(base, length_bytes, std::move(release)), 0, length_bytes);
}

Allocator& HostAllocator() {
  return TheAllocator();
}

bool SharesLargeBuffers() {
  return share_buffers.load(std::memory_order_relaxed);
}

void ShareLargeBuffers() {
  if (!kExactBlocks) share_buffers.store(true, std::memory_order_relaxed);
}

void ReleaseUnusedMemory() {
  TheAllocator().ReleaseCached(kLargeUseBytes);
  SharedMemory::Global().Trim();
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

}  // namespace muster
