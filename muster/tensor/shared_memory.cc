#include "muster/tensor/shared_memory.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "muster/tensor/buffer.h"
#include "muster/tensor/unused_memory.h"

namespace muster {
namespace {

// Pages are only there once they are written to, so a large segment costs nothing.
constexpr size_t kSegmentBytes = size_t{64} << 20;
constexpr size_t kPageBytes = 4096;

size_t RoundUp(size_t value, size_t unit) {
  return (value + unit - 1) / unit * unit;
}

// A process that maps a segment must never fault because it was truncated.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

}  // namespace

SharedMemory& SharedMemory::Global() {
  static auto* memory = new SharedMemory;
  return *memory;
}

SharedMemory::~SharedMemory() {
  MutexLock lock(mutex_);
  while (!segments_.empty()) ReturnSegmentLocked(segments_.begin());
}

bool SharedMemory::AddSegmentLocked(size_t size_bytes) {
  const size_t bytes = RoundUp(std::max(size_bytes, kSegmentBytes), kPageBytes);
  const int descriptor = memfd_create("muster", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (descriptor < 0) return false;
  void* base = MAP_FAILED;
  if (ftruncate(descriptor, static_cast<off_t>(bytes)) == 0 &&
      fcntl(descriptor, F_ADD_SEALS, kSeals) == 0) {
    base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  }
  if (base == MAP_FAILED) {
    close(descriptor);
    return false;
  }
  const auto address = reinterpret_cast<Address>(base);
  segments_.emplace(address, Segment{++last_number_, descriptor, bytes});
  by_number_.emplace(last_number_, address);
  size_bytes_.fetch_add(static_cast<int64_t>(bytes), std::memory_order_relaxed);
  AddFreeLocked(address, bytes);
  return true;
}

void SharedMemory::ReturnSegmentLocked(Segments::iterator segment) {
  const auto [number, descriptor, bytes, num_kept] = segment->second;
  munmap(reinterpret_cast<void*>(segment->first), bytes);
  close(descriptor);
  by_number_.erase(number);
  segments_.erase(segment);
  size_bytes_.fetch_sub(static_cast<int64_t>(bytes), std::memory_order_relaxed);
  num_returned_.fetch_add(1, std::memory_order_release);
}

SharedMemory::Segments::const_iterator SharedMemory::SegmentOfLocked(Address address) const {
  auto at = segments_.upper_bound(address);
  if (at == segments_.begin()) return segments_.end();
  --at;
  return address < at->first + at->second.size_bytes ? at : segments_.end();
}

void SharedMemory::AddFreeLocked(Address address, size_t size_bytes) {
  free_.emplace(address, size_bytes);
  free_by_size_.emplace(size_bytes, address);
}

void SharedMemory::RemoveFreeLocked(std::map<Address, size_t>::iterator at) {
  free_by_size_.erase({at->second, at->first});
  free_.erase(at);
}

void* SharedMemory::Allocate(size_t size_bytes) {
  if (size_bytes >= kLargeUseBytes) NoteLargeUse();
  const size_t bytes = RoundUp(std::max<size_t>(size_bytes, 1), kBufferAlignment);
  MutexLock lock(mutex_);
  auto best = free_by_size_.lower_bound({bytes, 0});
  if (best == free_by_size_.end()) {
    if (!AddSegmentLocked(bytes)) return nullptr;
    best = free_by_size_.lower_bound({bytes, 0});
  }
  const auto [free_bytes, address] = *best;
  RemoveFreeLocked(free_.find(address));
  if (free_bytes > bytes) AddFreeLocked(address + bytes, free_bytes - bytes);
  return reinterpret_cast<void*>(address);
}

void SharedMemory::Free(void* block, size_t size_bytes) {
  if (size_bytes >= kLargeUseBytes) NoteLargeUse();
  size_t bytes = RoundUp(std::max<size_t>(size_bytes, 1), kBufferAlignment);
  auto address = reinterpret_cast<Address>(block);
  MutexLock lock(mutex_);
  const Address segment_begin = SegmentOfLocked(address)->first;
  // Two segments may be adjacent, but no block spans both.
  const Address segment_end = segment_begin + segments_.at(segment_begin).size_bytes;
  auto next = free_.lower_bound(address);
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == address && before->first >= segment_begin) {
      address = before->first;
      bytes += before->second;
      RemoveFreeLocked(before);
    }
  }
  next = free_.lower_bound(address);
  if (next != free_.end() && next->first == address + bytes && next->first < segment_end) {
    bytes += next->second;
    RemoveFreeLocked(next);
  }
  // The last one is kept for the next allocation.
  if (address == segment_begin && address + bytes == segment_end && segments_.size() > 1)
    return ReturnSegmentLocked(segments_.find(segment_begin));
  AddFreeLocked(address, bytes);
}

void SharedMemory::Trim() {
  MutexLock lock(mutex_);
  for (auto segment = segments_.begin(); segment != segments_.end();) {
    const auto next = std::next(segment);
    const auto space = free_.find(segment->first);
    if (space != free_.end() && space->second == segment->second.size_bytes) {
      RemoveFreeLocked(space);
      ReturnSegmentLocked(segment);
    }
    segment = next;
  }
  for (const auto& [address, size_bytes] : free_) {
    if (SegmentOfLocked(address)->second.num_kept > 0) continue;
    const Address begin = RoundUp(address, kPageBytes);
    const Address end = (address + size_bytes) / kPageBytes * kPageBytes;
    // The pages are freed, here and in processes that map them; the addresses stay valid.
    if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_REMOVE);
  }
}

std::optional<SharedMemory::Place> SharedMemory::Find(const void* data) const {
  const auto address = reinterpret_cast<Address>(data);
  MutexLock lock(mutex_);
  const auto segment = SegmentOfLocked(address);
  if (segment == segments_.end()) return std::nullopt;
  return Place{segment->second.number, address - segment->first};
}

absl::StatusOr<SharedMemory::Opened> SharedMemory::Open(uint64_t segment) const {
  MutexLock lock(mutex_);
  const auto found = by_number_.find(segment);
  if (found == by_number_.end())
    return absl::NotFoundError(absl::StrCat("no segment of shared memory has number ", segment));
  const Segment& opened = segments_.at(found->second);
  // Opened again, since a duplicate of the descriptor could write too.
  const std::string path = absl::StrCat("/proc/self/fd/", opened.descriptor);
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return Internal("cannot open ", path, ": ", std::strerror(errno));
  return Opened{descriptor, opened.size_bytes};
}

bool SharedMemory::KeepPages(uint64_t segment) {
  MutexLock lock(mutex_);
  const auto found = by_number_.find(segment);
  if (found == by_number_.end()) return false;
  ++segments_.at(found->second).num_kept;
  return true;
}

void SharedMemory::ReleasePages(uint64_t segment) {
  MutexLock lock(mutex_);
  const auto found = by_number_.find(segment);
  if (found != by_number_.end()) --segments_.at(found->second).num_kept;
}

bool SharedMemory::Has(uint64_t segment) const {
  MutexLock lock(mutex_);
  return by_number_.contains(segment);
}

absl::StatusOr<SharedMapping> SharedMapping::Map(int descriptor, size_t size_bytes) {
  struct stat status;
  const int seals = fcntl(descriptor, F_GET_SEALS);
  const bool is_ours = seals >= 0 && (seals & F_SEAL_SHRINK) != 0 && size_bytes > 0 &&
                       fstat(descriptor, &status) == 0 &&
                       static_cast<uint64_t>(status.st_size) >= size_bytes;
  void* const base =
      is_ours ? mmap(nullptr, size_bytes, PROT_READ, MAP_SHARED, descriptor, 0) : MAP_FAILED;
  close(descriptor);
  if (!is_ours) return InvalidArgument("a descriptor is not a segment of ", size_bytes, " bytes");
  if (base == MAP_FAILED) return Internal("cannot map ", size_bytes, " bytes of another process");
  return SharedMapping(static_cast<const char*>(base), size_bytes);
}

void SharedMapping::LetRead(MappingReader& reader) const {
  if (has_been_asked_.exchange(true)) return;
  if (reader.Begin(data_, size_bytes_)) reader_.store(&reader);
}

SharedMapping::~SharedMapping() {
  if (data_ == nullptr) return;
  if (MappingReader* const reader = reader_.load()) reader->End(data_);
  munmap(const_cast<char*>(data_), size_bytes_);
}

namespace {
std::atomic<MappingReader*> mapping_reader{nullptr};
}  // namespace

MappingReader* MappingReader::Get() {
  return mapping_reader.load(std::memory_order_acquire);
}
void MappingReader::Set(MappingReader* reader) {
  mapping_reader.store(reader, std::memory_order_release);
}

}  // namespace muster
