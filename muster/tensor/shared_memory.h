// Memory that can be shared with other processes of this machine: segments, divided into blocks.
// The system frees a segment when the last process that maps it is gone, however that ended.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/container/flat_hash_map.h"

#include "muster/base/mutex.h"
#include "muster/base/status.h"

namespace muster {

// Thread-safe.
class SharedMemory {
 public:
  // The one of the process, never destroyed.
  static SharedMemory& Global();

  SharedMemory() = default;
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  // Aligned to kBufferAlignment, contents undefined; null when the system gives no more.
  void* Allocate(size_t size_bytes);
  // Requires: what Allocate gave for the same size.
  void Free(void* block, size_t size_bytes);
  // Gives free pages back to the system, also those between blocks in use.
  void Trim();

  struct Place {
    uint64_t segment = 0;  // numbers are never reused
    uint64_t offset = 0;
  };
  // Nothing for memory of another kind.
  std::optional<Place> Find(const void* data) const;

  struct Opened {
    int descriptor = -1;  // for reading only; the caller's to close
    size_t size_bytes = 0;
  };
  // NotFound for one that has been given back.
  absl::StatusOr<Opened> Open(uint64_t segment) const;
  bool Has(uint64_t segment) const;
  // From now on, until ReleasePages, the pages of the segment stay where they are: Trim leaves them.
  // False for one that has been given back, which it may be nevertheless.
  bool KeepPages(uint64_t segment);
  void ReleasePages(uint64_t segment);
  // How many segments have been given back: a user that has shared some checks them when it grows.
  uint64_t num_returned() const { return num_returned_.load(std::memory_order_acquire); }
  int64_t size_bytes() const { return size_bytes_.load(std::memory_order_relaxed); }

 private:
  struct Segment {
    uint64_t number = 0;
    int descriptor = -1;
    size_t size_bytes = 0;
    int num_kept = 0;  // calls of KeepPages
  };
  using Address = uintptr_t;
  using Segments = std::map<Address, Segment>;  // by their first byte

  bool AddSegmentLocked(size_t size_bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ReturnSegmentLocked(Segments::iterator segment) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Segments::const_iterator SegmentOfLocked(Address address) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AddFreeLocked(Address address, size_t size_bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RemoveFreeLocked(std::map<Address, size_t>::iterator at)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  Segments segments_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<uint64_t, Address> by_number_ ABSL_GUARDED_BY(mutex_);
  std::map<Address, size_t> free_ ABSL_GUARDED_BY(mutex_);
  std::set<std::pair<size_t, Address>> free_by_size_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_number_ ABSL_GUARDED_BY(mutex_) = 0;
  std::atomic<uint64_t> num_returned_{0};
  std::atomic<int64_t> size_bytes_{0};
};

// Copying a smaller buffer is faster than telling another process where it is, unless many are told
// at once.
inline constexpr size_t kSharedFromBytes = 16 << 10;
inline constexpr size_t kSharedTogetherFromBytes = 2 << 10;
// From now on the HostAllocator takes buffers of at least that size from here, so that other tasks
// of this machine can read them in place.
void ShareLargeBuffers();
bool SharesLargeBuffers();

// A device that reads memory of other processes by itself. Thread-safe.
class MappingReader {
 public:
  // The one of this process; null: none.
  static MappingReader* Get();
  static void Set(MappingReader* reader);

  virtual ~MappingReader() = default;
  // False: it cannot. Requires: the pages stay where they are.
  virtual bool Begin(const char* data, size_t size_bytes) = 0;
  // Before the memory goes. Nothing reads it any more.
  virtual void End(const char* data) = 0;
};

// Memory of another process, for reading.
class SharedMapping {
 public:
  // Takes the descriptor. InvalidArgument for what is not a sealed segment: its owner could
  // truncate it while it is read.
  static absl::StatusOr<SharedMapping> Map(int descriptor, size_t size_bytes);
  SharedMapping(SharedMapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_bytes_(other.size_bytes_) {
    reader_.store(other.reader_.exchange(nullptr));
  }
  SharedMapping& operator=(SharedMapping&&) = delete;
  ~SharedMapping();
  const char* data() const { return data_; }
  size_t size_bytes() const { return size_bytes_; }
  // The reader of the process may read it, if it can. Takes some milliseconds the first time.
  void LetRead(MappingReader& reader) const;

 private:
  SharedMapping(const char* data, size_t size_bytes) : data_(data), size_bytes_(size_bytes) {}
  const char* data_;
  size_t size_bytes_;
  mutable std::atomic<bool> has_been_asked_{false};
  mutable std::atomic<MappingReader*> reader_{nullptr};
};

}  // namespace muster
