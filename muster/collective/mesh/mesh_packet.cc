#include "muster/collective/mesh/mesh_packet.h"

#include <bit>
#include <cstring>

namespace muster::collective {
namespace {

static_assert(std::endian::native == std::endian::little,
              "headers are written in the machine's byte order");
constexpr uint32_t kMagic = 0x68734D31;

template <typename T>
void Put(MeshPacketHeader& header, size_t offset, T value) {
  std::memcpy(header.data() + offset, &value, sizeof(T));
}

template <typename T>
T Get(const char* header, size_t offset) {
  T value;
  std::memcpy(&value, header + offset, sizeof(T));
  return value;
}

bool LengthFits(const MeshPacket& packet) {
  switch (packet.kind) {
    case MeshPacketKind::kData:
      return packet.length > 0 && packet.length <= kPacketBytes;
    case MeshPacketKind::kAbort:
      return packet.length <= kAbortMessageBytes;
    default:
      return packet.length == 0;
  }
}

}  // namespace

MeshPacketHeader EncodeHeader(const MeshPacket& packet) {
  MeshPacketHeader header{};
  Put(header, 0, kMagic);
  Put(header, 4, static_cast<uint8_t>(packet.kind));
  Put(header, 8, packet.tag);
  Put(header, 16, packet.signature);
  Put(header, 24, packet.step);
  Put(header, 28, packet.length);
  return header;
}

absl::StatusOr<MeshPacket> DecodeHeader(const char* header) {
  const auto kind = Get<uint8_t>(header, 4);
  if (Get<uint32_t>(header, 0) != kMagic || kind < 1 || kind > 5 || header[5] != 0 ||
      header[6] != 0 || header[7] != 0) {
    return InvalidArgument("wrong bytes at the start of a packet");
  }
  const MeshPacket packet{static_cast<MeshPacketKind>(kind), Get<uint64_t>(header, 8),
                          Get<uint64_t>(header, 16), Get<uint32_t>(header, 24),
                          Get<uint32_t>(header, 28)};
  if (!LengthFits(packet)) {
    return InvalidArgument("a packet of kind ", kind, " with ", packet.length, " bytes");
  }
  return packet;
}

}  // namespace muster::collective
