// GIF: every frame of a file, drawn over the ones before it.
#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "muster/base/status.h"
#include "muster/ops/input/image_codec.h"

namespace muster {
namespace {

constexpr int64_t kMaxBytes = int64_t{1} << 29;

// Reads forward; past the end it gives zeros and says so.
class Bytes {
 public:
  explicit Bytes(absl::string_view rest) : rest_(rest) {}
  bool ended() const { return ended_; }
  int Byte() {
    if (rest_.empty()) {
      ended_ = true;
      return 0;
    }
    const int value = static_cast<uint8_t>(rest_[0]);
    rest_.remove_prefix(1);
    return value;
  }
  int Word() {
    const int low = Byte();
    return low | Byte() << 8;
  }
  absl::string_view Take(size_t size) {
    if (size > rest_.size()) {
      ended_ = true;
      size = rest_.size();
    }
    const absl::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }
  // A chain of sub-blocks, joined.
  std::string Blocks() {
    std::string all;
    while (!ended_) {
      const int size = Byte();
      if (size == 0) break;
      const absl::string_view block = Take(static_cast<size_t>(size));
      all.append(block.data(), block.size());
    }
    return all;
  }

 private:
  absl::string_view rest_;
  bool ended_ = false;
};

struct Palette {
  std::array<std::array<uint8_t, 3>, 256> colors = {};
  bool present = false;
};

Palette ReadPalette(Bytes& bytes, int flags) {
  Palette palette;
  palette.present = (flags & 0x80) != 0;
  if (!palette.present) return palette;
  const int size = 2 << (flags & 7);
  for (int i = 0; i < size; ++i) {
    for (uint8_t& part : palette.colors[i]) part = static_cast<uint8_t>(bytes.Byte());
  }
  return palette;
}

// The palette indices in LZW codes; fewer than `count` when the codes end early.
std::vector<uint8_t> Decompress(absl::string_view codes, int minimum_bits, int64_t count) {
  constexpr int kCodes = 4096;
  std::vector<uint8_t> pixels;
  pixels.reserve(static_cast<size_t>(std::min<int64_t>(count, int64_t{1} << 24)));
  std::vector<int16_t> prefix(kCodes, -1);
  std::vector<uint8_t> last(kCodes), stack(kCodes + 1);
  const int clear = 1 << minimum_bits;
  const int end = clear + 1;
  for (int i = 0; i < clear; ++i) last[i] = static_cast<uint8_t>(i);
  int next = end + 1, bits = minimum_bits + 1, previous = -1;
  uint8_t first = 0;
  uint32_t window = 0;
  int have = 0;
  size_t at = 0;
  while (static_cast<int64_t>(pixels.size()) < count) {
    while (have < bits && at < codes.size()) {
      window |= static_cast<uint32_t>(static_cast<uint8_t>(codes[at++])) << have;
      have += 8;
    }
    if (have < bits) break;
    int code = static_cast<int>(window & ((1u << bits) - 1));
    window >>= bits;
    have -= bits;
    if (code == end) break;
    if (code == clear) {
      next = end + 1;
      bits = minimum_bits + 1;
      previous = -1;
      continue;
    }
    if (code > next || (code == next && previous < 0)) break;
    int depth = 0;
    const int added = code;
    if (code == next) {
      stack[depth++] = first;
      code = previous;
    }
    while (code > end && depth < kCodes) {
      stack[depth++] = last[code];
      code = prefix[code];
    }
    first = last[code];
    stack[depth++] = first;
    while (depth > 0 && static_cast<int64_t>(pixels.size()) < count)
      pixels.push_back(stack[--depth]);
    if (previous >= 0 && next < kCodes) {
      prefix[next] = static_cast<int16_t>(previous);
      last[next] = first;
      ++next;
      if (next == 1 << bits && bits < 12) ++bits;
    }
    previous = added;
  }
  return pixels;
}

struct Frame {
  int left = 0;
  int top = 0;
  int width = 0;
  int height = 0;
  bool interlaced = false;
  int transparent = -1;
  Palette palette;
  std::vector<uint8_t> pixels;
};

// The row in which the n-th stored row of an interlaced frame is shown.
int ShownRow(int n, int height) {
  constexpr int kStarts[] = {0, 4, 2, 1};
  constexpr int kSteps[] = {8, 8, 4, 2};
  for (int pass = 0; pass < 4; ++pass) {
    const int rows = (height - kStarts[pass] + kSteps[pass] - 1) / kSteps[pass];
    if (n < rows) return kStarts[pass] + n * kSteps[pass];
    n -= std::max(rows, 0);
  }
  return height - 1;
}

void Draw(const Frame& frame, int64_t height, int64_t width, uint8_t* canvas) {
  for (int row = 0; row < frame.height; ++row) {
    const int64_t y = frame.top + (frame.interlaced ? ShownRow(row, frame.height) : row);
    for (int column = 0; column < frame.width; ++column) {
      const int64_t x = frame.left + column;
      const size_t at = static_cast<size_t>(row) * frame.width + column;
      if (y >= height || x >= width || at >= frame.pixels.size()) continue;
      const uint8_t color = frame.pixels[at];
      if (color == frame.transparent) continue;
      std::memcpy(canvas + (y * width + x) * 3, frame.palette.colors[color].data(), 3);
    }
  }
}

absl::StatusOr<Frame> ReadFrame(Bytes& bytes, const Palette& global) {
  Frame frame;
  frame.left = bytes.Word();
  frame.top = bytes.Word();
  frame.width = bytes.Word();
  frame.height = bytes.Word();
  const int flags = bytes.Byte();
  frame.interlaced = (flags & 0x40) != 0;
  frame.palette = ReadPalette(bytes, flags);
  if (!frame.palette.present) frame.palette = global;
  if (!frame.palette.present) return InvalidArgument("missing color map for frame");
  const int minimum_bits = bytes.Byte();
  if (minimum_bits < 1 || minimum_bits > 8)
    return InvalidArgument("Invalid GIF data: codes of ", minimum_bits, " bits");
  const int64_t count = int64_t{frame.width} * frame.height;
  if (count > kMaxBytes) return InvalidArgument("GIF frame too large");
  const std::string codes = bytes.Blocks();
  frame.pixels = Decompress(codes, minimum_bits, count);
  return frame;
}

// The frames of a file up to its end, or up to where it breaks off.
absl::StatusOr<std::vector<Frame>> ReadFrames(Bytes& bytes, const Palette& global) {
  std::vector<Frame> frames;
  int transparent = -1;
  int64_t pixels = 0;
  while (!bytes.ended()) {
    const int introducer = bytes.Byte();
    if (introducer == 0x3b || bytes.ended()) break;
    if (introducer == 0x21) {
      const int label = bytes.Byte();
      const std::string extension = bytes.Blocks();
      if (label == 0xf9 && extension.size() >= 4) {
        transparent = (extension[0] & 1) != 0 ? static_cast<uint8_t>(extension[3]) : -1;
      }
    } else if (introducer == 0x2c) {
      ASSIGN_OR_RETURN(Frame frame, ReadFrame(bytes, global));
      if (static_cast<int64_t>(frame.pixels.size()) < int64_t{frame.width} * frame.height) {
        if (frames.empty()) return InvalidArgument("Invalid GIF data: a frame is not complete");
        break;  // those before it are good
      }
      frame.transparent = transparent;
      transparent = -1;
      pixels += static_cast<int64_t>(frame.pixels.size());
      if (pixels > kMaxBytes) return InvalidArgument("GIF too large");
      frames.push_back(std::move(frame));
    } else {
      return InvalidArgument("Invalid GIF data: block of kind ", introducer);
    }
  }
  return frames;  // a file may lack its last byte
}

}  // namespace

absl::StatusOr<Tensor> DecodeGif(absl::string_view data) {
  Bytes bytes(data);
  const absl::string_view signature = bytes.Take(6);
  if (signature != "GIF87a" && signature != "GIF89a")
    return InvalidArgument("Invalid GIF data, size ", data.size());
  bytes.Take(4);  // the screen; TensorFlow takes the first frame's size
  const int flags = bytes.Byte();
  bytes.Take(2);
  const Palette global = ReadPalette(bytes, flags);
  ASSIGN_OR_RETURN(const std::vector<Frame> frames, ReadFrames(bytes, global));
  if (frames.empty()) return InvalidArgument("gif file does not contain any image");
  int64_t height = 0, width = 0;
  for (const Frame& frame : frames) {
    height = std::max<int64_t>(height, frame.height);
    width = std::max<int64_t>(width, frame.width);
  }
  const auto count = static_cast<int64_t>(frames.size());
  if (height <= 0 || width <= 0 || height * width * 3 > kMaxBytes / count)
    return InvalidArgument("Invalid GIF size: ", count, " frames of ", width, " by ", height);
  ASSIGN_OR_RETURN(Tensor images, Tensor::Make(DType::kUint8, Shape({count, height, width, 3})));
  auto* pixels = reinterpret_cast<uint8_t*>(images.raw());
  const int64_t frame_bytes = height * width * 3;
  std::memset(pixels, 0, images.size_bytes());
  for (int64_t i = 0; i < count; ++i) {
    uint8_t* const canvas = pixels + i * frame_bytes;
    if (i > 0) std::memcpy(canvas, canvas - frame_bytes, static_cast<size_t>(frame_bytes));
    Draw(frames[i], height, width, canvas);
  }
  return images;
}

}  // namespace muster
