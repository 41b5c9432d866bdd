// What travels on a channel: a header, then `length` bytes. Integers are little-endian.
//
//   magic 4 | kind 1 | zero 3 | tag 8 | signature 8 | step 4 | length 4
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "muster/base/status.h"

namespace muster::collective {

enum class MeshPacketKind : uint8_t {
  kData = 1,   // a piece of send number `step` of the collective `tag`
  kReady = 2,  // the sender takes part in `tag` and awaits all of its sends below `step`
  kPing = 3,   // are you there?
  kPong = 4,
  kAbort = 5,  // the group has failed: `step` is the status code, the bytes are the message
};

struct MeshPacket {
  MeshPacketKind kind = MeshPacketKind::kPing;
  uint64_t tag = 0;
  uint64_t signature = 0;  // of the call: what it does, with how many bytes
  uint32_t step = 0;
  uint32_t length = 0;
};

inline constexpr size_t kPacketHeaderBytes = 32;
// A piece of data is at most this long, so that collectives interleave on a channel and a failure
// can be sent soon.
inline constexpr size_t kPacketBytes = 256 << 10;
inline constexpr size_t kAbortMessageBytes = 2048;

using MeshPacketHeader = std::array<char, kPacketHeaderBytes>;
MeshPacketHeader EncodeHeader(const MeshPacket& packet);
// InvalidArgument for bytes that no rank of ours has sent.
absl::StatusOr<MeshPacket> DecodeHeader(const char* header);

}  // namespace muster::collective
