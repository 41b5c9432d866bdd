#include "muster/transport/piece_store.h"

#include <algorithm>

#include "muster/base/random.h"

namespace muster {

uint64_t PieceStore::Add(const Tensor& tensor) {
  return Add({tensor.buffer().Slice(0, tensor.size_bytes())});
}

uint64_t PieceStore::Add(std::vector<Buffer> parts) {
  const absl::Time now = clock_.Now();
  uint64_t size_bytes = 0;
  for (const Buffer& part : parts) size_bytes += part.length_bytes();
  MutexLock lock(mutex_);
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    entry = now - entry->second.used > kKeep ? entries_.erase(entry) : std::next(entry);
  }
  uint64_t id = EntropySeed();
  while (id == 0 || entries_.count(id) > 0) id = EntropySeed();
  entries_[id] = {std::move(parts), size_bytes, now, 0};
  return id;
}

absl::StatusOr<Buffer> PieceStore::Take(uint64_t id, uint64_t offset, uint64_t length) {
  const absl::Time now = clock_.Now();
  MutexLock lock(mutex_);
  const auto found = entries_.find(id);
  if (found == entries_.end()) {
    return NotFound("There is no tensor ", id, " of which a piece could be fetched");
  }
  Entry& entry = found->second;
  if (offset >= entry.size_bytes) {
    return OutOfRange("A piece at byte ", offset, " was asked for of a tensor of ",
                      entry.size_bytes, " bytes");
  }
  auto part = entry.parts.begin();
  for (; offset >= part->length_bytes(); ++part) offset -= part->length_bytes();
  length = std::min(length, part->length_bytes() - offset);
  Buffer piece = part->Slice(offset, length);
  entry.taken += length;
  entry.used = now;
  if (entry.taken >= entry.size_bytes) entries_.erase(found);
  return piece;
}

size_t PieceStore::size() const {
  MutexLock lock(mutex_);
  return entries_.size();
}

}  // namespace muster
