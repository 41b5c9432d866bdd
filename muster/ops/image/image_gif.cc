// GIF: every frame of a file, drawn over the ones before it. giflib reads the file; sizes are
// checked before memory is taken for them, and a frame takes no more than its data have given.
#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include <gif_lib.h>

#include "muster/base/status.h"
#include "muster/ops/image/image_codec.h"

namespace muster {
namespace {

constexpr int64_t kMaxBytes = int64_t{1} << 29;

int ReadBytes(GifFileType* file, GifByteType* to, int size) {
  auto& rest = *static_cast<absl::string_view*>(file->UserData);
  const size_t count = std::min(rest.size(), static_cast<size_t>(size));
  std::copy_n(rest.data(), count, to);
  rest.remove_prefix(count);
  return static_cast<int>(count);
}

struct CloseFile {
  void operator()(GifFileType* file) const { (void)DGifCloseFile(file, nullptr); }
};

struct Frame {
  int left = 0;
  int top = 0;
  int width = 0;
  int height = 0;
  int transparent = -1;
  std::vector<GifColorType> palette;
  std::vector<uint8_t> pixels;  // in the order in which they are stored
  bool interlaced = false;
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

absl::Status Draw(const Frame& frame, int64_t height, int64_t width, uint8_t* canvas) {
  for (int row = 0; row < frame.height; ++row) {
    const int64_t y = frame.top + (frame.interlaced ? ShownRow(row, frame.height) : row);
    if (y >= height) continue;
    const uint8_t* const colors = frame.pixels.data() + static_cast<size_t>(row) * frame.width;
    const int64_t columns = std::min<int64_t>(frame.width, width - frame.left);
    for (int64_t column = 0; column < columns; ++column) {
      const uint8_t color = colors[column];
      if (color == frame.transparent) continue;
      if (color >= frame.palette.size()) {
        return InvalidArgument("Invalid GIF data: found color index ", color,
                               " outside of color map range ", frame.palette.size());
      }
      uint8_t* const to = canvas + (y * width + frame.left + column) * 3;
      to[0] = frame.palette[color].Red;
      to[1] = frame.palette[color].Green;
      to[2] = frame.palette[color].Blue;
    }
  }
  return absl::OkStatus();
}

class Reader {
 public:
  // The frames of a file up to its end, or up to where it is damaged: those before are good.
  absl::StatusOr<std::vector<Frame>> Read(absl::string_view data) {
    rest_ = data;
    file_.reset(DGifOpen(&rest_, ReadBytes, nullptr));
    if (file_ == nullptr) return InvalidArgument("Invalid GIF data, size ", data.size());
    std::vector<Frame> frames;
    int64_t pixels = 0;
    for (;;) {
      absl::StatusOr<std::optional<Frame>> frame = NextFrame();
      if (absl::IsDataLoss(frame.status()) && !frames.empty()) break;
      if (!frame.ok()) return InvalidArgument(frame.status().message());
      if (!frame->has_value()) break;
      pixels += static_cast<int64_t>((*frame)->pixels.size());
      if (pixels > kMaxBytes) return InvalidArgument("GIF too large");
      frames.push_back(**std::move(frame));
    }
    return frames;
  }

 private:
  absl::Status Damaged() const {
    const char* const why = GifErrorString(file_->Error);
    return absl::DataLossError(
        absl::StrCat("Invalid GIF data: ", why == nullptr ? "unknown error" : why));
  }

  // Nothing at the end; DataLoss where the file is damaged or breaks off.
  absl::StatusOr<std::optional<Frame>> NextFrame() {
    for (;;) {
      GifRecordType kind = UNDEFINED_RECORD_TYPE;
      if (DGifGetRecordType(file_.get(), &kind) != GIF_OK) return Damaged();
      if (kind == TERMINATE_RECORD_TYPE) return std::nullopt;
      if (kind == IMAGE_DESC_RECORD_TYPE) return ReadFrame();
      RETURN_IF_ERROR(ReadExtension());
    }
  }

  // The only extension that matters makes a colour of the next frame transparent.
  absl::Status ReadExtension() {
    int label = 0;
    GifByteType* block = nullptr;  // its first byte is its size
    if (DGifGetExtension(file_.get(), &label, &block) != GIF_OK) return Damaged();
    if (label == GRAPHICS_EXT_FUNC_CODE && block != nullptr && block[0] >= 4)
      transparent_ = (block[1] & 1) != 0 ? block[4] : -1;
    while (block != nullptr) {
      if (DGifGetExtensionNext(file_.get(), &block) != GIF_OK) return Damaged();
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::optional<Frame>> ReadFrame() {
    if (DGifGetImageDesc(file_.get()) != GIF_OK) return Damaged();
    const GifImageDesc& image = file_->Image;
    Frame frame;
    frame.left = image.Left;
    frame.top = image.Top;
    frame.width = image.Width;
    frame.height = image.Height;
    frame.interlaced = image.Interlace;
    frame.transparent = std::exchange(transparent_, -1);
    const ColorMapObject* const map = image.ColorMap != nullptr ? image.ColorMap : file_->SColorMap;
    if (map == nullptr) return InvalidArgument("missing color map for frame");
    frame.palette.assign(map->Colors, map->Colors + map->ColorCount);
    if (int64_t{frame.width} * frame.height > kMaxBytes)
      return InvalidArgument("GIF frame too large");
    const auto width = static_cast<size_t>(frame.width);
    for (int row = 0; row < frame.height; ++row) {
      frame.pixels.resize(frame.pixels.size() + width);
      GifPixelType* const line = frame.pixels.data() + frame.pixels.size() - width;
      if (DGifGetLine(file_.get(), line, frame.width) != GIF_OK) return Damaged();
    }
    return frame;
  }

  absl::string_view rest_;
  std::unique_ptr<GifFileType, CloseFile> file_;
  int transparent_ = -1;
};

}  // namespace

absl::StatusOr<Tensor> DecodeGif(absl::string_view data) {
  if (!absl::StartsWith(data, "GIF8"))
    return InvalidArgument("Invalid GIF data, size ", data.size());
  ASSIGN_OR_RETURN(const std::vector<Frame> frames, Reader().Read(data));
  if (frames.empty()) return InvalidArgument("gif file does not contain any image");
  // TensorFlow takes the size of the largest frame, not that of the screen.
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
    RETURN_IF_ERROR(Draw(frames[i], height, width, canvas));
  }
  return images;
}

}  // namespace muster
