#include "muster/transport/piece_store.h"

#include <algorithm>

#include "muster/base/random.h"

namespace muster {

uint64_t PieceStore::Add(Tensor tensor) {
  const absl::Time now = clock_.Now();
  MutexLock lock(mutex_);
  for (auto entry = tensors_.begin(); entry != tensors_.end();) {
    entry = now - entry->second.used > kKeep ? tensors_.erase(entry) : std::next(entry);
  }
  uint64_t id = EntropySeed();
  while (id == 0 || tensors_.count(id) > 0) id = EntropySeed();
  tensors_[id] = {std::move(tensor), now, 0};
  return id;
}

absl::StatusOr<Buffer> PieceStore::Take(uint64_t id, uint64_t offset, uint64_t length) {
  const absl::Time now = clock_.Now();
  MutexLock lock(mutex_);
  const auto found = tensors_.find(id);
  if (found == tensors_.end()) {
    return NotFound("There is no tensor ", id, " of which a piece could be fetched");
  }
  const uint64_t size = found->second.tensor.size_bytes();
  if (offset >= size) {
    return OutOfRange("A piece at byte ", offset, " was asked for of a tensor of ", size, " bytes");
  }
  length = std::min(length, size - offset);
  Buffer piece = found->second.tensor.buffer().Slice(offset, length);
  Entry& entry = found->second;
  entry.taken += length;
  entry.used = now;
  if (entry.taken >= size) tensors_.erase(found);
  return piece;
}

size_t PieceStore::size() const {
  MutexLock lock(mutex_);
  return tensors_.size();
}

}  // namespace muster
