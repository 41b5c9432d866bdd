// JPEG by libjpeg-turbo, which reports errors by longjmp: what a jump can pass over has no
// destructors.
#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <jpeglib.h>

#include "muster/base/status.h"
#include "muster/ops/image/image_codec.h"

namespace muster {
namespace {

// libjpeg calls these with the state whose first member it was given.
struct Errors {
  jpeg_error_mgr base;
  std::jmp_buf jump;
};
void Fail(j_common_ptr state) {
  std::longjmp(reinterpret_cast<Errors*>(state->err)->jump, 1);
}
void Ignore(j_common_ptr) {}
void IgnoreAt(j_common_ptr, int) {}

void InitErrors(Errors& errors) {
  jpeg_std_error(&errors.base);
  errors.base.error_exit = Fail;
  errors.base.output_message = Ignore;
  errors.base.emit_message = IgnoreAt;
}

void NothingToDo(j_decompress_ptr) {}

// All bytes are in memory; an end marker is appended on request.
struct Source {
  jpeg_source_mgr base;
  bool recovers = false;
  int asked = 0;
  JOCTET end[2] = {0xff, JPEG_EOI};
};
boolean FillInput(j_decompress_ptr state) {
  auto* source = reinterpret_cast<Source*>(state->src);
  const auto fail = [&] { std::longjmp(reinterpret_cast<Errors*>(state->err)->jump, 1); };
  // Some loops of libjpeg request input for ever.
  if (++source->asked > 1000) fail();
  if (source->base.bytes_in_buffer > 0) return source->recovers ? TRUE : FALSE;
  // One end marker is appended; a decoder that needs more has lost data.
  if (!source->recovers || source->base.next_input_byte == source->end) fail();
  source->base.next_input_byte = source->end;
  source->base.bytes_in_buffer = 2;
  return TRUE;
}
void SkipInput(j_decompress_ptr state, long count) {  // NOLINT(google-runtime-int)
  if (count <= 0) return;
  jpeg_source_mgr* source = state->src;
  if (static_cast<size_t>(count) > source->bytes_in_buffer) {
    source->next_input_byte += source->bytes_in_buffer;
    source->bytes_in_buffer = 0;
    return;
  }
  source->next_input_byte += count;
  source->bytes_in_buffer -= static_cast<size_t>(count);
}

class Reader {
 public:
  Reader(absl::string_view bytes, bool recovers) {
    InitErrors(errors_);
    state_.err = &errors_.base;
    source_.base.next_input_byte = reinterpret_cast<const JOCTET*>(bytes.data());
    source_.base.bytes_in_buffer = bytes.size();
    source_.base.init_source = NothingToDo;
    source_.base.fill_input_buffer = FillInput;
    source_.base.skip_input_data = SkipInput;
    source_.base.resync_to_restart = jpeg_resync_to_restart;
    source_.base.term_source = NothingToDo;
    source_.recovers = recovers;
  }
  Reader(const Reader&) = delete;
  ~Reader() {
    if (created_) jpeg_destroy_decompress(&state_);
    std::free(row_);
  }

  bool ReadHeader() {
    if (setjmp(errors_.jump) != 0) return false;
    jpeg_create_decompress(&state_);
    created_ = true;
    state_.src = &source_.base;
    return jpeg_read_header(&state_, TRUE) == JPEG_HEADER_OK;
  }

  bool Start(const JpegDecoding& how, int channels) {
    if (setjmp(errors_.jump) != 0) return false;
    SetColors(channels);
    state_.do_fancy_upsampling = how.fancy_upscaling ? TRUE : FALSE;
    state_.scale_num = 1;
    state_.scale_denom = static_cast<unsigned>(how.ratio);
    state_.dct_method = how.accurate ? JDCT_ISLOW : JDCT_IFAST;
    return jpeg_start_decompress(&state_) != 0;
  }

  // Reads the rows of `crop` into pixels, each of crop.width * channels bytes. The bytes may end
  // before the last one: see rows_read. False when they make no sense.
  bool ReadRows(const CropWindow& crop, bool whole, int channels, uint8_t* pixels) {
    if (setjmp(errors_.jump) != 0) return false;
    left_ = 0;
    if (!whole) {
      JDIMENSION x = static_cast<JDIMENSION>(crop.x);
      JDIMENSION width = static_cast<JDIMENSION>(crop.width);
      jpeg_crop_scanline(&state_, &x, &width);
      left_ = crop.x - static_cast<int>(x);
      jpeg_skip_scanlines(&state_, static_cast<JDIMENSION>(crop.y));
    }
    const size_t row_bytes = static_cast<size_t>(state_.output_width) * state_.output_components;
    row_ = static_cast<JSAMPLE*>(std::malloc(row_bytes + 1));
    if (row_ == nullptr) return false;
    while (rows_read_ < crop.height) {
      JSAMPROW row = row_;
      if (jpeg_read_scanlines(&state_, &row, 1) != 1) return true;
      CopyRow(pixels + static_cast<int64_t>(rows_read_) * crop.width * channels, crop.width,
              channels);
      ++rows_read_;
    }
    return true;
  }

  // Reads to the end: only then are all errors of the file known.
  bool Finish() {
    if (setjmp(errors_.jump) != 0) return false;
    if (state_.output_scanline < state_.output_height) {
      jpeg_abort_decompress(&state_);
    } else {
      jpeg_finish_decompress(&state_);
    }
    return true;
  }

  const jpeg_decompress_struct& state() const { return state_; }
  bool has_four_colors() const {
    return state_.jpeg_color_space == JCS_CMYK || state_.jpeg_color_space == JCS_YCCK;
  }
  int rows_read() const { return rows_read_; }

 private:
  void SetColors(int channels) {
    if (channels == 1) {
      state_.out_color_space = JCS_GRAYSCALE;
    } else {
      state_.out_color_space = has_four_colors() ? JCS_CMYK : JCS_RGB;
    }
  }

  void CopyRow(uint8_t* to, int width, int channels) {
    const JSAMPLE* from = row_ + static_cast<int64_t>(left_) * state_.output_components;
    if (state_.out_color_space != JCS_CMYK) {
      std::memcpy(to, from, static_cast<size_t>(width) * channels);
      return;
    }
    for (int x = 0; x < width; ++x, from += 4, to += 3) {
      const int key = from[3];
      for (int i = 0; i < 3; ++i) {
        // Adobe's files hold inverted inks.
        to[i] = static_cast<uint8_t>(state_.saw_Adobe_marker ? key * from[i] / 255
                                                             : (255 - key) * (255 - from[i]) / 255);
      }
    }
  }

  Errors errors_;
  Source source_;
  jpeg_decompress_struct state_;
  JSAMPLE* row_ = nullptr;
  int left_ = 0;
  int rows_read_ = 0;
  bool created_ = false;
};

absl::Status Invalid(absl::string_view bytes, const JpegDecoding& how) {
  return InvalidArgument("Invalid JPEG data or crop window, data size ", bytes.size(),
                         how.crop == nullptr
                             ? ""
                             : absl::StrCat(" at crop [", how.crop->y, ",", how.crop->x, ",",
                                            how.crop->height, ",", how.crop->width, "]"));
}

class Writer {
 public:
  Writer() {
    InitErrors(errors_);
    state_.err = &errors_.base;
  }
  Writer(const Writer&) = delete;
  ~Writer() {
    if (created_) jpeg_destroy_compress(&state_);
    std::free(bytes_);
  }

  bool Write(const uint8_t* pixels, int height, int width, const JpegEncoding& how) {
    if (setjmp(errors_.jump) != 0) return false;
    jpeg_create_compress(&state_);
    created_ = true;
    jpeg_mem_dest(&state_, &bytes_, &size_);
    state_.image_width = static_cast<JDIMENSION>(width);
    state_.image_height = static_cast<JDIMENSION>(height);
    state_.input_components = how.channels;
    state_.in_color_space = how.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(&state_);
    if (how.optimize_size) state_.optimize_coding = TRUE;
    state_.density_unit = how.density_in_cm ? 2 : 1;
    state_.X_density = static_cast<UINT16>(how.x_density);
    state_.Y_density = static_cast<UINT16>(how.y_density);
    jpeg_set_quality(&state_, how.quality, TRUE);
    if (how.progressive) jpeg_simple_progression(&state_);
    if (!how.chroma_downsampling) {
      for (int i = 0; i < state_.num_components; ++i) {
        state_.comp_info[i].h_samp_factor = 1;
        state_.comp_info[i].v_samp_factor = 1;
      }
    }
    jpeg_start_compress(&state_, TRUE);
    WriteMetadata(how.xmp_metadata);
    const int64_t row_bytes = static_cast<int64_t>(width) * how.channels;
    while (state_.next_scanline < state_.image_height) {
      auto* row = const_cast<JSAMPLE*>(pixels + state_.next_scanline * row_bytes);
      jpeg_write_scanlines(&state_, &row, 1);
    }
    jpeg_finish_compress(&state_);
    return true;
  }
  std::string bytes() const { return std::string(reinterpret_cast<char*>(bytes_), size_); }

 private:
  void WriteMetadata(const std::string& xmp) {
    if (xmp.empty()) return;
    // An APP1 segment: the name space, a zero byte, the packet.
    constexpr char kNamespace[] = "http://ns.adobe.com/xap/1.0/";
    jpeg_write_m_header(&state_, JPEG_APP0 + 1,
                        static_cast<unsigned>(sizeof(kNamespace) + xmp.size()));
    for (size_t i = 0; i < sizeof(kNamespace); ++i) jpeg_write_m_byte(&state_, kNamespace[i]);
    for (const char byte : xmp) jpeg_write_m_byte(&state_, static_cast<uint8_t>(byte));
  }

  Errors errors_;
  jpeg_compress_struct state_;
  unsigned char* bytes_ = nullptr;
  unsigned long size_ = 0;  // NOLINT(google-runtime-int)
  bool created_ = false;
};

}  // namespace

absl::StatusOr<JpegSize> ReadJpegSize(absl::string_view bytes) {
  Reader reader(bytes, false);
  if (!reader.ReadHeader()) return InvalidArgument("Invalid JPEG data, size ", bytes.size());
  JpegSize size;
  size.height = static_cast<int>(reader.state().image_height);
  size.width = static_cast<int>(reader.state().image_width);
  size.channels = reader.has_four_colors() ? 3 : reader.state().num_components;
  return size;
}

absl::StatusOr<Tensor> DecodeJpeg(absl::string_view bytes, const JpegDecoding& how) {
  Reader reader(bytes, how.try_recover_truncated);
  if (!reader.ReadHeader()) return Invalid(bytes, how);
  int channels = how.channels;
  if (channels == 0) channels = std::min(reader.state().num_components, 3);
  if (reader.state().num_components == 2 || (channels == 1 && reader.has_four_colors()))
    return Invalid(bytes, how);
  if (channels == 2) return Invalid(bytes, how);
  if (!reader.Start(how, channels)) return Invalid(bytes, how);
  const int64_t height = reader.state().output_height;
  const int64_t width = reader.state().output_width;
  CropWindow window{0, 0, static_cast<int>(height), static_cast<int>(width)};
  if (how.crop != nullptr) window = *how.crop;
  if (window.y < 0 || window.x < 0 || window.height <= 0 || window.width <= 0 ||
      int64_t{window.y} + window.height > height || int64_t{window.x} + window.width > width)
    return Invalid(bytes, how);
  if (height <= 0 || width <= 0 || height * width * channels >= (int64_t{1} << 29))
    return Invalid(bytes, how);
  ASSIGN_OR_RETURN(Tensor image,
                   Tensor::Make(DType::kUint8, Shape({window.height, window.width, channels})));
  auto* pixels = reinterpret_cast<uint8_t*>(image.raw());
  std::memset(pixels, 0, image.size_bytes());
  if (!reader.ReadRows(window, how.crop == nullptr, channels, pixels)) return Invalid(bytes, how);
  const float read = static_cast<float>(reader.rows_read()) / static_cast<float>(window.height);
  if (read < std::min(1.0f, how.acceptable_fraction) || (read == 1 && !reader.Finish()))
    return Invalid(bytes, how);
  return image;
}

absl::StatusOr<std::string> EncodeJpeg(const uint8_t* pixels, int64_t height, int64_t width,
                                       const JpegEncoding& how) {
  if (height <= 0 || width <= 0 || height > JPEG_MAX_DIMENSION || width > JPEG_MAX_DIMENSION)
    return InvalidArgument("JPEG images have 1 to ", JPEG_MAX_DIMENSION, " rows and columns, not ",
                           height, " by ", width);
  if (how.xmp_metadata.size() > 65000)
    return InvalidArgument("xmp_metadata has ", how.xmp_metadata.size(),
                           " bytes, more than a JPEG segment holds");
  Writer writer;
  if (!writer.Write(pixels, static_cast<int>(height), static_cast<int>(width), how))
    return Internal("JPEG encoding failed");
  return writer.bytes();
}

}  // namespace muster
