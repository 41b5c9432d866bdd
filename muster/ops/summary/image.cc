// ImageSummary: images as PNG.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_join.h"
#include <png.h>

#include "muster/ops/op.h"
#include "muster/ops/summary/summary_proto.h"

namespace muster {
namespace {

absl::StatusOr<std::string> EncodePng(const uint8_t* pixels, int height, int width, int channels) {
  png_image image = {};
  image.version = PNG_IMAGE_VERSION;
  image.height = static_cast<png_uint_32>(height);
  image.width = static_cast<png_uint_32>(width);
  image.format = channels == 1 ? PNG_FORMAT_GRAY : channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_RGBA;
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(image);
  std::string bytes(size, '\0');
  if (!png_image_write_to_memory(&image, bytes.data(), &size, 0, pixels, width * channels,
                                 nullptr)) {
    return Internal("PNG encoding failed");
  }
  bytes.resize(size);
  return bytes;
}

template <typename T>
bool IsFinite(const T* pixel, int channels) {
  return std::all_of(pixel, pixel + channels,
                     [](T value) { return std::isfinite(static_cast<Compute<T>>(value)); });
}

// Stretches the finite pixels of one image to the range of a byte; others get `bad_color`.
// Every operation is rounded to T, as TensorFlow's are.
template <typename T>
void Normalize(const T* image, int64_t num_pixels, int channels, const uint8_t* bad_color,
               uint8_t* to) {
  using C = Compute<T>;
  float low = std::numeric_limits<float>::infinity();
  float high = -low;
  for (int64_t i = 0; i < num_pixels; ++i) {
    const T* pixel = image + i * channels;
    if (!IsFinite(pixel, channels)) continue;
    for (int j = 0; j < channels; ++j) {
      const float value = static_cast<float>(static_cast<C>(pixel[j]));
      low = std::min(low, value);
      high = std::max(high, value);
    }
  }
  constexpr float kZero = 1e-6f;
  const bool has_negative = low < 0;
  const float most = has_negative ? std::max(std::abs(low), std::abs(high)) : high;
  const C scale = static_cast<C>(T(most < kZero ? 0.0f : (has_negative ? 127.0f : 255.0f) / most));
  const C offset = has_negative ? C{128} : C{0};
  for (int64_t i = 0; i < num_pixels; ++i) {
    const T* pixel = image + i * channels;
    if (!IsFinite(pixel, channels)) {
      std::copy(bad_color, bad_color + channels, to + i * channels);
      continue;
    }
    for (int j = 0; j < channels; ++j) {
      const C product = static_cast<C>(T(static_cast<C>(pixel[j]) * scale));
      const C sum = static_cast<C>(T(product + offset));
      // Doubles beyond the range of float give sums that are not finite.
      to[i * channels + j] = sum >= 0 && sum < 256 ? static_cast<uint8_t>(sum) : 0;
    }
  }
}

class ImageSummary : public Kernel {
 public:
  absl::Status Init(KernelSetup& s) override {
    ASSIGN_OR_RETURN(max_images_, s.Attr<int64_t>("max_images"));
    if (max_images_ >= int64_t{1} << 31) return InvalidArgument("max_images must be < 2^31");
    ASSIGN_OR_RETURN(bad_color_, s.Attr<Tensor>("bad_color"));
    if (bad_color_.dtype() != DType::kUint8) {
      return InvalidArgument("bad_color must be uint8, got ", DTypeName(bad_color_.dtype()));
    }
    if (bad_color_.rank() != 1) {
      return InvalidArgument("bad_color must be a vector, got shape ",
                             bad_color_.shape().ToString());
    }
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    const Tensor& tag = c.input(0);
    const Tensor& images = c.input(1);
    if (tag.rank() != 0) return InvalidArgument("Tags must be a scalar");
    const bool has_channels =
        images.rank() == 4 && (images.dim(3) == 1 || images.dim(3) == 3 || images.dim(3) == 4);
    if (!has_channels) {
      return InvalidArgument("Tensor must be 4-D with last dim 1, 3, or 4, not ",
                             images.shape().ToString());
    }
    constexpr int64_t kMost = int64_t{1} << 31;
    const int64_t height = images.dim(1), width = images.dim(2);
    const bool is_large = images.dim(0) >= kMost || height >= kMost || width >= kMost ||
                          (width > 0 && height >= kMost / 4 / width);
    if (is_large)
      return InvalidArgument("Tensor too large for summary ", images.shape().ToString());
    const int channels = static_cast<int>(images.dim(3));
    const int64_t count = std::min(max_images_, images.dim(0));
    if (count > 0 && (height == 0 || width == 0)) {
      return InvalidArgument("input tensor must have non-zero dims. Found: [",
                             absl::StrJoin(images.shape().dims(), ", "), "].");
    }
    if (images.dtype() != DType::kUint8 && bad_color_.num_elements() < channels) {
      return InvalidArgument("expected depth <= bad_color.size, got depth = ", channels,
                             ", bad_color.size = ", bad_color_.num_elements());
    }
    switch (images.dtype()) {
      case DType::kUint8:
        return Encode<uint8_t>(c, count);
      case DType::kHalf:
        return Encode<Half>(c, count);
      case DType::kDouble:
        return Encode<double>(c, count);
      default:
        return Encode<float>(c, count);
    }
  }

 private:
  template <typename T>
  absl::Status Encode(KernelContext& c, int64_t count) const {
    const Tensor& images = c.input(1);
    const std::string& tag = c.input(0).scalar<std::string>();
    const int height = static_cast<int>(images.dim(1)), width = static_cast<int>(images.dim(2));
    const int channels = static_cast<int>(images.dim(3));
    const int64_t num_pixels = int64_t{height} * width;
    std::vector<uint8_t> normalized;
    SummaryBuilder summary;
    for (int64_t i = 0; i < count; ++i) {
      const T* image = images.data<T>() + i * num_pixels * channels;
      const uint8_t* pixels;
      if constexpr (std::is_same_v<T, uint8_t>) {
        pixels = image;
      } else {
        normalized.resize(static_cast<size_t>(num_pixels * channels));
        Normalize(image, num_pixels, channels, bad_color_.data<uint8_t>(), normalized.data());
        pixels = normalized.data();
      }
      ASSIGN_OR_RETURN(std::string png, EncodePng(pixels, height, width, channels));
      summary.AddImage(
          max_images_ > 1 ? absl::StrCat(tag, "/image/", i) : absl::StrCat(tag, "/image"), height,
          width, channels, std::move(png));
    }
    ASSIGN_OR_RETURN(std::string bytes, summary.Serialize());
    c.SetOutput(0, Tensor::Scalar(std::move(bytes)));
    return absl::OkStatus();
  }

  int64_t max_images_ = 3;
  Tensor bad_color_;
};

}  // namespace

DEFINE_OP(ImageSummary) {
  op.Attr("max_images: int >= 1 = 3")
      .Attr("T: {uint8, float, half, double} = DT_FLOAT")
      .Attr("bad_color: tensor = {uint8: 255 0 0 255}")
      .Input("tag: string")
      .Input("tensor: T")
      .Output("summary: string")
      .Doc("A Summary with the first images of a batch, those of floats stretched to bytes.")
      .Shape(ScalarShape)
      .NoGradient("a summary is text")
      .Cpu(New<ImageSummary>());
}

}  // namespace muster
