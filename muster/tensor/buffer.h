// Memory: a Region is reference counted and knows how to give itself back; a Buffer is a part of
// one. Regions may be heap memory, a numpy array, a network buffer, a mapped file, later shared
// memory or memory of a GPU.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/functional/any_invocable.h"

#include "muster/base/ref_counted.h"

namespace muster {

inline constexpr size_t kBufferAlignment = 64;

enum class MemoryKind : uint8_t { kHost, kPinnedHost, kSharedHost, kDevice };

class Buffer;

class Region : public RefCounted {
 public:
  Region(void* base, size_t size_bytes, MemoryKind kind)
      : base_(base), size_bytes_(size_bytes), kind_(kind) {}
  void* base() const { return base_; }
  size_t size_bytes() const { return size_bytes_; }
  MemoryKind kind() const { return kind_; }
  // False for memory that others may read or write, such as a caller's numpy array: never reused in
  // place.
  bool writable() const { return writable_; }
  // A copy of a part in memory of the same kind, made in the order of the device's work; an empty
  // Buffer when memory ran out. Only for memory that the host cannot use.
  virtual Buffer CopyOnDevice(size_t offset_bytes, size_t length_bytes) const;

 protected:
  void* base_;
  size_t size_bytes_;
  MemoryKind kind_;
  bool writable_ = true;
};

class Buffer {
 public:
  Buffer() = default;
  Buffer(RefPtr<Region> region, size_t offset_bytes, size_t length_bytes)
      : region_(std::move(region)), offset_bytes_(offset_bytes), length_bytes_(length_bytes) {}
  // Memory owned by someone else; `release` runs when the last reference goes. Not writable.
  static Buffer AdoptExternal(const void* base, size_t length_bytes,
                              absl::AnyInvocable<void() &&> release);

  char* data() const {
    return region_ ? static_cast<char*>(region_->base()) + offset_bytes_ : nullptr;
  }
  size_t length_bytes() const { return length_bytes_; }
  const Region* region() const { return region_.get(); }
  Buffer CopyOnDevice() const { return region_->CopyOnDevice(offset_bytes_, length_bytes_); }
  bool is_on_device() const { return region_ && region_->kind() == MemoryKind::kDevice; }
  explicit operator bool() const { return static_cast<bool>(region_); }
  // Sole owner of writable memory: the holder may change it in place.
  bool exclusive() const { return region_ && region_->RefIsOne() && region_->writable(); }
  Buffer Slice(size_t offset_bytes, size_t length_bytes) const {
    return Buffer(region_, offset_bytes_ + offset_bytes, length_bytes);
  }

 private:
  RefPtr<Region> region_;
  size_t offset_bytes_ = 0;
  size_t length_bytes_ = 0;
};

// Thread-safe. Owned by a device.
class Allocator {
 public:
  virtual ~Allocator() = default;
  // At least `size_bytes`, aligned to kBufferAlignment, contents undefined; an empty Buffer when
  // memory ran out.
  virtual Buffer Allocate(size_t size_bytes) = 0;
  virtual MemoryKind memory_kind() const = 0;
  struct Usage {
    int64_t bytes_in_use = 0;
    int64_t peak_bytes_in_use = 0;
    int64_t allocations = 0;
  };
  virtual Usage usage() const = 0;
};

// The heap of the process, with freed blocks kept for reuse; CPU devices and graph constants use
// it.
Allocator& HostAllocator();

}  // namespace muster
