#include "muster/collective/frame.h"

#include <bit>
#include <cstring>

namespace muster::collective {
namespace {

static_assert(std::endian::native == std::endian::little,
              "headers are written as they lie in memory");
constexpr uint32_t kMagic = 0x68734D31;

template <typename T>
void Put(FrameHeader& header, size_t offset, T value) {
  std::memcpy(header.data() + offset, &value, sizeof(T));
}

template <typename T>
T Get(const char* header, size_t offset) {
  T value;
  std::memcpy(&value, header + offset, sizeof(T));
  return value;
}

bool LengthFits(const Frame& frame) {
  switch (frame.kind) {
    case FrameKind::kData:
      return frame.length > 0 && frame.length <= kFrameBytes;
    case FrameKind::kAbort:
      return frame.length <= kAbortMessageBytes;
    default:
      return frame.length == 0;
  }
}

}  // namespace

FrameHeader EncodeFrame(const Frame& frame) {
  FrameHeader header{};
  Put(header, 0, kMagic);
  Put(header, 4, static_cast<uint8_t>(frame.kind));
  Put(header, 8, frame.tag);
  Put(header, 16, frame.signature);
  Put(header, 24, frame.step);
  Put(header, 28, frame.length);
  return header;
}

absl::StatusOr<Frame> DecodeFrame(const char* header) {
  const auto kind = Get<uint8_t>(header, 4);
  if (Get<uint32_t>(header, 0) != kMagic || kind < 1 || kind > 5 || header[5] != 0 ||
      header[6] != 0 || header[7] != 0) {
    return InvalidArgument("wrong bytes at the start of a frame");
  }
  const Frame frame{static_cast<FrameKind>(kind), Get<uint64_t>(header, 8),
                    Get<uint64_t>(header, 16), Get<uint32_t>(header, 24),
                    Get<uint32_t>(header, 28)};
  if (!LengthFits(frame)) {
    return InvalidArgument("a frame of kind ", kind, " with ", frame.length, " bytes");
  }
  return frame;
}

}  // namespace muster::collective
