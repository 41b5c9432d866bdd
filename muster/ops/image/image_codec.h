// Pictures as bytes of a file format and as tensors [height, width, channels]. Bytes are never
// trusted: whatever is wrong with them is InvalidArgument.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "muster/tensor/tensor.h"

namespace muster {

enum class ImageFormat { kUnknown, kPng, kJpeg, kGif, kBmp };
// By the first bytes.
ImageFormat DetectImageFormat(absl::string_view bytes);

// `channels` 0: as many as the file has, else 1 to 4. Type uint8 or uint16.
absl::StatusOr<Tensor> DecodePng(absl::string_view bytes, int channels, DType dtype);
// An image [height, width, 1..4] of uint8 or uint16. compression -1: zlib's choice, else 0 to 9.
absl::StatusOr<std::string> EncodePng(const char* pixels, DType dtype, int64_t height,
                                      int64_t width, int channels, int compression);

struct CropWindow {
  int y = 0;
  int x = 0;
  int height = 0;
  int width = 0;
};
struct JpegDecoding {
  int channels = 0;  // 0, 1 or 3
  int ratio = 1;     // 1, 2, 4 or 8
  bool fancy_upscaling = true;
  bool try_recover_truncated = false;
  float acceptable_fraction = 1;
  bool accurate = false;  // the slower and more exact inverse transform
  const CropWindow* crop = nullptr;
};
absl::StatusOr<Tensor> DecodeJpeg(absl::string_view bytes, const JpegDecoding& how);
struct JpegSize {
  int height = 0;
  int width = 0;
  int channels = 0;
};
absl::StatusOr<JpegSize> ReadJpegSize(absl::string_view bytes);

struct JpegEncoding {
  int channels = 3;  // 1 or 3
  int quality = 95;
  bool progressive = false;
  bool optimize_size = false;
  bool chroma_downsampling = true;
  bool density_in_cm = false;
  int x_density = 300;
  int y_density = 300;
  std::string xmp_metadata;
};
absl::StatusOr<std::string> EncodeJpeg(const uint8_t* pixels, int64_t height, int64_t width,
                                       const JpegEncoding& how);

// `channels` 0 (as stored), 1, 3 or 4; no conversions.
absl::StatusOr<Tensor> DecodeBmp(absl::string_view bytes, int channels);
// All frames, [frames, height, width, 3].
absl::StatusOr<Tensor> DecodeGif(absl::string_view bytes);

}  // namespace muster
