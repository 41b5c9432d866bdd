// What travels over a link between two processes: a header, a table of the message's pieces, and
// the bytes of those that are not read where they lie.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"

#include "muster/base/status.h"
#include "muster/tensor/buffer.h"
#include "muster/transport/wire/wire_message.h"

namespace muster::fast {

enum class PacketKind : uint32_t {
  kCall = 1,  // the path of the method, then the request
  kReply,     // the reply; with a code: text and payloads of an error
  kCancel,    // the caller has lost interest
  kRelease,   // numbers of loans that are over
  kSegments,  // numbers and sizes of segments, whose descriptors come with the packet
  kForget,    // numbers of segments that are gone
  kPing,      // asks for a kPong: the network between the processes may be cut
  kPong,
  kKeep,  // numbers of segments whose pages are to stay where they are: a card will read them
  kKept   // they will, until the link ends
};

struct PacketHeader {
  static constexpr uint32_t kMagic = 0x4d555346;
  uint32_t magic = kMagic;
  PacketKind kind = PacketKind::kCall;
  uint64_t call = 0;
  int32_t code = 0;  // of an error that is replied
  uint32_t num_pieces = 0;
  int64_t timeout_micros = 0;  // of a call; 0: none
  uint64_t body_bytes = 0;     // that follow, the table included
};
static_assert(sizeof(PacketHeader) == 40);

// A piece of the message. Without a segment its bytes are in the body.
struct PieceEntry {
  uint64_t segment = 0;
  uint64_t offset = 0;
  uint64_t length = 0;
  uint64_t loan = 0;  // what the receiver says when it needs the bytes no longer
  // Marks loans whose end is not urgent: it may be sent with the next packet.
  static constexpr uint64_t kNoHurry = uint64_t{1} << 63;
};
static_assert(sizeof(PieceEntry) == 32);

inline constexpr size_t kMaxPieces = 1 << 20;
inline constexpr size_t kMaxSegmentsAtOnce = 64;

struct Packet {
  PacketHeader header;
  Buffer body;
  absl::Span<const PieceEntry> pieces() const {
    return {reinterpret_cast<const PieceEntry*>(body.data()), header.num_pieces};
  }
  // What a packet of kRelease, kSegments or kForget lists.
  absl::Span<const uint64_t> numbers() const {
    return {reinterpret_cast<const uint64_t*>(body.data()), header.body_bytes / sizeof(uint64_t)};
  }
};

// Checks the header of a packet of at most `max_body_bytes`. InvalidArgument says what is wrong.
absl::Status CheckHeader(const PacketHeader& header, uint64_t max_body_bytes);

// Where a piece in shared memory lies in this process; null when the segment is not known or not so
// long.
using FindPiece = absl::FunctionRef<const char*(const PieceEntry& piece)>;
// The bytes of all pieces; `owner` keeps them.
absl::StatusOr<std::vector<absl::string_view>> PiecesOf(const Packet& packet, FindPiece find);

}  // namespace muster::fast
