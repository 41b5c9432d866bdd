#include "muster/transport/messages/piece_store.h"

#include <algorithm>
#include <utility>

namespace muster {

uint64_t PieceStore::Add(const Tensor& tensor) {
  return Add({tensor.buffer().Slice(0, tensor.size_bytes())});
}

uint64_t PieceStore::Add(std::vector<Buffer> parts) {
  uint64_t size_bytes = 0;
  for (const Buffer& part : parts) size_bytes += part.length_bytes();
  return *entries_.Add({std::move(parts), size_bytes, 0});
}

absl::StatusOr<Buffer> PieceStore::Take(uint64_t id, uint64_t offset, uint64_t length) {
  absl::StatusOr<Buffer> piece =
      NotFound("There is no tensor ", id, " of which a piece could be fetched");
  entries_.Visit(id, [&](Entry& entry) {
    if (offset >= entry.size_bytes) {
      piece = OutOfRange("A piece at byte ", offset, " was asked for of a tensor of ",
                         entry.size_bytes, " bytes");
      return Entries::After::kKeep;
    }
    auto part = entry.parts.begin();
    for (; offset >= part->length_bytes(); ++part) offset -= part->length_bytes();
    length = std::min(length, part->length_bytes() - offset);
    piece = part->Slice(offset, length);
    entry.taken += length;
    return entry.taken >= entry.size_bytes ? Entries::After::kDrop : Entries::After::kKeep;
  });
  return piece;
}

}  // namespace muster
