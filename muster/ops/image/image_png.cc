// PNG by libpng, which reports errors by longjmp: what a jump can pass over has no destructors.
#include <csetjmp>
#include <cstring>

#include <png.h>

#include "muster/base/status.h"
#include "muster/ops/image/image_codec.h"

namespace muster {
namespace {

constexpr int64_t kMaxBytes = int64_t{1} << 29;

void Fail(png_structp png, png_const_charp) {
  std::longjmp(png_jmpbuf(png), 1);
}
void Ignore(png_structp, png_const_charp) {}

struct Unread {
  const char* data;
  size_t size;
};

void ReadBytes(png_structp png, png_bytep to, png_size_t size) {
  auto* unread = static_cast<Unread*>(png_get_io_ptr(png));
  if (size > unread->size) png_error(png, "end of data");
  std::memcpy(to, unread->data, size);
  unread->data += size;
  unread->size -= size;
}

class Reader {
 public:
  Reader(absl::string_view bytes, int channels, bool wide)
      : unread_{bytes.data(), bytes.size()}, channels_(channels), wide_(wide) {}
  Reader(const Reader&) = delete;
  ~Reader() { png_destroy_read_struct(&png_, &info_, nullptr); }

  // Reads up to the pixels; false when the bytes are not a PNG.
  bool Start() {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, nullptr, Fail, Ignore);
    if (png_ == nullptr) return false;
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    info_ = png_create_info_struct(png_);
    if (info_ == nullptr) return false;
    png_set_read_fn(png_, &unread_, ReadBytes);
    png_read_info(png_, info_);
    SetTransformations();
    png_read_update_info(png_, info_);
    return true;
  }

  // Requires: `pixels` holds height() rows of width() pixels of the wanted type.
  bool ReadPixels(char* pixels) {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    for (int pass = 0; pass < passes_; ++pass) {
      for (int64_t y = 0; y < height(); ++y) {
        png_read_row(png_, reinterpret_cast<png_bytep>(pixels + y * row_bytes()), nullptr);
      }
    }
    png_read_end(png_, info_);
    if (wide_ && stored_bytes() == 1) Widen(reinterpret_cast<uint8_t*>(pixels));
    return true;
  }

  int64_t height() const { return png_get_image_height(png_, info_); }
  int64_t width() const { return png_get_image_width(png_, info_); }
  int channels() const { return channels_; }
  int64_t row_bytes() const { return static_cast<int64_t>(png_get_rowbytes(png_, info_)); }
  // Per value, as libpng gives it: 1 or 2.
  int stored_bytes() const { return png_get_bit_depth(png_, info_) == 16 ? 2 : 1; }

 private:
  // In place, from the end: values of one byte become values of two.
  void Widen(uint8_t* pixels) const {
    for (int64_t i = height() * row_bytes() - 1; i >= 0; --i)
      pixels[2 * i] = pixels[2 * i + 1] = pixels[i];
  }

  void SetTransformations() {
    const int color = png_get_color_type(png_, info_);
    const int depth = png_get_bit_depth(png_, info_);
    const bool has_table = png_get_valid(png_, info_, PNG_INFO_tRNS) != 0;
    const bool has_alpha = (color & PNG_COLOR_MASK_ALPHA) != 0;
    if (channels_ == 0) {
      channels_ = color == PNG_COLOR_TYPE_PALETTE ? (has_table ? 4 : 3)
                                                  : static_cast<int>(png_get_channels(png_, info_));
    }
    const bool wants_gray = channels_ < 3;
    const bool wants_alpha = channels_ % 2 == 0;
    const bool is_gray = (color & PNG_COLOR_MASK_COLOR) == 0;
    if (!wide_ && depth == 16) png_set_strip_16(png_);
    if (wide_) png_set_swap(png_);
    png_set_packing(png_);
    passes_ = png_set_interlace_handling(png_);
    if (color == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png_);
    if (is_gray && depth < 8) png_set_expand_gray_1_2_4_to_8(png_);
    if (has_table && wants_alpha) png_set_tRNS_to_alpha(png_);
    // TensorFlow's value for "opaque", also where less than 8 bits were widened.
    if (wants_alpha && !has_alpha && !has_table)
      png_set_add_alpha(png_, (1u << depth) - 1, PNG_FILLER_AFTER);
    if (!wants_alpha && (has_alpha || has_table)) png_set_strip_alpha(png_);
    if (wants_gray && !is_gray) png_set_rgb_to_gray(png_, 1, 0.299, 0.587);
    if (!wants_gray && is_gray) png_set_gray_to_rgb(png_);
  }

  Unread unread_;
  int channels_;
  const bool wide_;
  int passes_ = 1;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
};

void AppendBytes(png_structp png, png_bytep bytes, png_size_t size) {
  static_cast<std::string*>(png_get_io_ptr(png))->append(reinterpret_cast<char*>(bytes), size);
}
void Flush(png_structp) {}

class Writer {
 public:
  explicit Writer(std::string* to) : to_(to) {}
  Writer(const Writer&) = delete;
  ~Writer() { png_destroy_write_struct(&png_, &info_); }

  bool Write(const char* pixels, bool wide, int64_t height, int64_t width, int channels,
             int compression) {
    constexpr int kColors[] = {PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_GRAY_ALPHA, PNG_COLOR_TYPE_RGB,
                               PNG_COLOR_TYPE_RGB_ALPHA};
    png_ = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, Fail, Ignore);
    if (png_ == nullptr || setjmp(png_jmpbuf(png_)) != 0) return false;
    info_ = png_create_info_struct(png_);
    if (info_ == nullptr) return false;
    png_set_write_fn(png_, to_, AppendBytes, Flush);
    if (compression >= 0) png_set_compression_level(png_, compression);
    png_set_IHDR(png_, info_, static_cast<png_uint_32>(width), static_cast<png_uint_32>(height),
                 wide ? 16 : 8, kColors[channels - 1], PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_write_info(png_, info_);
    if (wide) png_set_swap(png_);
    const int64_t row = width * channels * (wide ? 2 : 1);
    for (int64_t y = 0; y < height; ++y)
      png_write_row(png_, reinterpret_cast<png_const_bytep>(pixels + y * row));
    png_write_end(png_, nullptr);
    return true;
  }

 private:
  std::string* const to_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
};

}  // namespace

absl::StatusOr<Tensor> DecodePng(absl::string_view bytes, int channels, DType dtype) {
  Reader reader(bytes, channels, dtype == DType::kUint16);
  if (!reader.Start()) return InvalidArgument("Invalid PNG header, data size ", bytes.size());
  const int64_t height = reader.height();
  const int64_t width = reader.width();
  if (width <= 0 || width > 100000000 || height <= 0 || height > 100000000)
    return InvalidArgument("PNG size too large for int: ", width, " by ", height);
  if (height * width * reader.channels() >= kMaxBytes)
    return InvalidArgument("Total size too large: ", width, " by ", height);
  if (reader.row_bytes() != width * reader.channels() * reader.stored_bytes() ||
      reader.stored_bytes() > static_cast<int>(DTypeSize(dtype)))
    return InvalidArgument("Invalid PNG data, size ", bytes.size());
  ASSIGN_OR_RETURN(Tensor image, Tensor::Make(dtype, Shape({height, width, reader.channels()})));
  if (!reader.ReadPixels(image.raw()))
    return InvalidArgument("Invalid PNG data, size ", bytes.size());
  return image;
}

absl::StatusOr<std::string> EncodePng(const char* pixels, DType dtype, int64_t height,
                                      int64_t width, int channels, int compression) {
  if (height <= 0 || width <= 0 || height > PNG_USER_HEIGHT_MAX || width > PNG_USER_WIDTH_MAX)
    return Internal("PNG encoding failed: images have at least one pixel, and not ", height, " by ",
                    width);
  std::string bytes;
  Writer writer(&bytes);
  if (!writer.Write(pixels, dtype == DType::kUint16, height, width, channels, compression))
    return Internal("PNG encoding failed");
  return bytes;
}

}  // namespace muster
