#include "muster/transport/fast/packet.h"

namespace muster::fast {

absl::Status CheckHeader(const PacketHeader& header, uint64_t max_body_bytes) {
  if (header.magic != PacketHeader::kMagic)
    return InvalidArgument("a packet begins with ", header.magic, ", not with ",
                           PacketHeader::kMagic);
  if (header.kind < PacketKind::kCall || header.kind > PacketKind::kKept)
    return InvalidArgument("a packet is of kind ", static_cast<uint32_t>(header.kind),
                           ", which does not exist");
  if (header.body_bytes > max_body_bytes)
    return InvalidArgument("a packet has ", header.body_bytes, " bytes; at most ", max_body_bytes,
                           " are taken");
  if (header.num_pieces > kMaxPieces || header.num_pieces * sizeof(PieceEntry) > header.body_bytes)
    return InvalidArgument("a packet of ", header.body_bytes, " bytes cannot have ",
                           header.num_pieces, " pieces");
  if (header.kind >= PacketKind::kRelease &&
      (header.num_pieces != 0 || header.body_bytes % sizeof(uint64_t) != 0))
    return InvalidArgument("a packet of ", header.body_bytes, " bytes cannot hold numbers");
  return absl::OkStatus();
}

absl::StatusOr<std::vector<absl::string_view>> PiecesOf(const Packet& packet, FindPiece find) {
  std::vector<absl::string_view> pieces;
  pieces.reserve(packet.header.num_pieces);
  uint64_t at = packet.header.num_pieces * sizeof(PieceEntry);
  for (const PieceEntry& piece : packet.pieces()) {
    if (piece.segment != 0) {
      const char* const data = find(piece);
      if (data == nullptr)
        return InvalidArgument("a packet refers to ", piece.length, " bytes at ", piece.offset,
                               " of segment ", piece.segment, ", which are not there");
      pieces.emplace_back(data, piece.length);
      continue;
    }
    // Pieces follow each other; a gap before one lets it begin at an even address.
    if (piece.offset < at || piece.offset > packet.header.body_bytes ||
        piece.length > packet.header.body_bytes - piece.offset)
      return InvalidArgument("a piece of ", piece.length, " bytes at ", piece.offset,
                             " leaves a packet of ", packet.header.body_bytes, " bytes");
    pieces.emplace_back(packet.body.data() + piece.offset, piece.length);
    at = piece.offset + piece.length;
  }
  return pieces;
}

}  // namespace muster::fast
