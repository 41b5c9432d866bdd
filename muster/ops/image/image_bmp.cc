// BMP without compression, and which format some bytes are in.
#include <cstring>

#include "absl/strings/match.h"

#include "muster/base/status.h"
#include "muster/ops/image/image_codec.h"

namespace muster {
namespace {

constexpr size_t kHeaderBytes = 34;  // up to the fields that matter

int32_t ReadInt32(absl::string_view bytes, size_t at) {
  uint32_t value = 0;
  for (int i = 3; i >= 0; --i) value = value << 8 | static_cast<uint8_t>(bytes[at + i]);
  return static_cast<int32_t>(value);
}
int ReadInt16(absl::string_view bytes, size_t at) {
  return static_cast<uint8_t>(bytes[at]) | static_cast<uint8_t>(bytes[at + 1]) << 8;
}

}  // namespace

ImageFormat DetectImageFormat(absl::string_view bytes) {
  if (absl::StartsWith(bytes, "\xff\xd8\xff")) return ImageFormat::kJpeg;
  if (absl::StartsWith(bytes, "\211PNG\r\n\032\n")) return ImageFormat::kPng;
  if (absl::StartsWith(bytes, "GIF8")) return ImageFormat::kGif;
  if (absl::StartsWith(bytes, "BM")) return ImageFormat::kBmp;
  return ImageFormat::kUnknown;
}

absl::StatusOr<Tensor> DecodeBmp(absl::string_view bytes, int channels) {
  if (bytes.size() < kHeaderBytes) {
    return InvalidArgument(
        "Incomplete bmp content, requires at least 32 bytes to find the header "
        "size, width, height, and bpp, got ",
        bytes.size(), " bytes");
  }
  const int64_t start = ReadInt32(bytes, 10);
  const int64_t width = ReadInt32(bytes, 18);
  const int64_t signed_height = ReadInt32(bytes, 22);
  const int bits = ReadInt16(bytes, 28);
  if (bits == 0) return InvalidArgument("bpp must be non-zero");
  const int stored = bits / 8;
  if (channels != 0 && channels != stored) {
    return InvalidArgument("channels attribute ", channels,
                           " does not match bits per pixel from file ", stored);
  }
  if (stored != 1 && stored != 3 && stored != 4)
    return InvalidArgument("Number of channels must be 1, 3 or 4, was ", stored);
  // Rows run from the bottom up unless the height is negative.
  const bool top_down = signed_height < 0;
  const int64_t height = top_down ? -signed_height : signed_height;
  if (width <= 0 || width > (int64_t{1} << 27)) return InvalidArgument("Width must be positive");
  if (height <= 0) return InvalidArgument("Height must be positive");
  if (start < 0) return InvalidArgument("Header size must be non-negative");
  const int64_t row = (width * stored + 3) / 4 * 4;
  const auto size = static_cast<int64_t>(bytes.size());
  // The last row may lack its padding.
  if (start > size || (size - start) / row < height - 1 ||
      size - start - (height - 1) * row < width * stored) {
    return InvalidArgument("Incomplete bmp content, requires at least ",
                           start + (height - 1) * row + width * stored, " bytes, got ", size,
                           " bytes");
  }
  ASSIGN_OR_RETURN(Tensor image, Tensor::Make(DType::kUint8, Shape({height, width, stored})));
  auto* to = reinterpret_cast<uint8_t*>(image.raw());
  for (int64_t y = 0; y < height; ++y) {
    const char* from = bytes.data() + start + (top_down ? y : height - 1 - y) * row;
    for (int64_t x = 0; x < width; ++x, from += stored, to += stored) {
      std::memcpy(to, from, static_cast<size_t>(stored));
      if (stored >= 3) std::swap(to[0], to[2]);  // stored as blue, green, red
    }
  }
  return image;
}

}  // namespace muster
