// DecodeImage: whatever picture the bytes hold, in the type that is asked for.
#include <algorithm>
#include <cstdint>
#include <limits>

#include "muster/ops/image/image_codec.h"
#include "muster/ops/op.h"

namespace muster {
namespace {

template <typename From, typename To>
void Scale(const Tensor& from, To scale, Tensor& to) {
  for (int64_t i = 0; i < from.num_elements(); ++i)
    to.data<To>()[i] = static_cast<To>(static_cast<To>(from.data<From>()[i]) * scale);
}

// The full range of the one type becomes that of the other; floats are from 0 to 1.
absl::StatusOr<Tensor> Converted(Tensor image, DType dtype) {
  if (image.dtype() == dtype) return image;
  ASSIGN_OR_RETURN(Tensor result, Tensor::Make(dtype, image.shape()));
  if (dtype == DType::kUint16) {
    Scale<uint8_t, uint16_t>(image, 256, result);
  } else if (image.dtype() == DType::kUint8) {
    Scale<uint8_t, float>(image, 1.0f / std::numeric_limits<uint8_t>::max(), result);
  } else {
    Scale<uint16_t, float>(image, 1.0f / std::numeric_limits<uint16_t>::max(), result);
  }
  return result;
}

class DecodeImageKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& s) override {
    dtype_ = s.output_type(0);
    ASSIGN_OR_RETURN(const int64_t channels, s.Attr<int64_t>("channels"));
    if (channels != 0 && channels != 1 && channels != 3 && channels != 4)
      return InvalidArgument("`channels` must be 0, 1, 3 or 4 but got ", channels);
    channels_ = static_cast<int>(channels);
    ASSIGN_OR_RETURN(expand_animations_, s.Attr<bool>("expand_animations"));
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    if (!c.input(0).shape().is_scalar()) {
      return InvalidArgument("`contents` must be scalar but got shape ",
                             c.input(0).shape().ToString());
    }
    const std::string& bytes = c.input(0).scalar<std::string>();
    if (bytes.empty()) return InvalidArgument("Input is empty.");
    if (bytes.size() > std::numeric_limits<int32_t>::max())
      return InvalidArgument("Input contents are too large for int: ", bytes.size());
    ASSIGN_OR_RETURN(Tensor image, Decode(bytes));
    ASSIGN_OR_RETURN(image, Converted(std::move(image), dtype_));
    c.SetOutput(0, std::move(image));
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<Tensor> Decode(const std::string& bytes) const {
    switch (DetectImageFormat(bytes)) {
      case ImageFormat::kJpeg: {
        if (channels_ == 4) return InvalidArgument("channels must be 0, 1, or 3 for JPEG, got 4");
        JpegDecoding how;
        how.channels = channels_;
        return DecodeJpeg(bytes, how);
      }
      case ImageFormat::kPng:
        return DecodePng(bytes, channels_,
                         dtype_ == DType::kUint8 ? DType::kUint8 : DType::kUint16);
      case ImageFormat::kGif:
        return DecodeFrames(bytes);
      case ImageFormat::kBmp:
        if (channels_ == 1)
          return InvalidArgument("`channels` must be 0, 3 or 4 for BMP, but got 1");
        return DecodeOpaqueBmp(bytes);
      case ImageFormat::kUnknown:
        break;
    }
    return InvalidArgument("Unknown image file format. One of JPEG, PNG, GIF, BMP required.");
  }

  // Four channels of a file that has three: opaque.
  absl::StatusOr<Tensor> DecodeOpaqueBmp(const std::string& bytes) const {
    if (channels_ != 4) return DecodeBmp(bytes, channels_);
    ASSIGN_OR_RETURN(Tensor image, DecodeBmp(bytes, 0));
    if (image.dim(2) != 3) return DecodeBmp(bytes, channels_);
    ASSIGN_OR_RETURN(Tensor result,
                     Tensor::Make(DType::kUint8, Shape({image.dim(0), image.dim(1), 4})));
    const uint8_t* from = image.data<uint8_t>();
    uint8_t* to = result.data<uint8_t>();
    for (int64_t i = 0; i < image.dim(0) * image.dim(1); ++i, from += 3, to += 4) {
      std::copy_n(from, 3, to);
      to[3] = std::numeric_limits<uint8_t>::max();
    }
    return result;
  }

  absl::StatusOr<Tensor> DecodeFrames(const std::string& bytes) const {
    if (channels_ != 0 && channels_ != 3)
      return InvalidArgument("channels must be 0 or 3 for GIF, got ", channels_);
    ASSIGN_OR_RETURN(Tensor frames, DecodeGif(bytes));
    if (expand_animations_) return frames;
    ASSIGN_OR_RETURN(Tensor first,
                     Tensor::Make(DType::kUint8, Shape({frames.dim(1), frames.dim(2), 3})));
    std::copy_n(frames.data<uint8_t>(), first.num_elements(), first.data<uint8_t>());
    return first;
  }

  DType dtype_ = DType::kUint8;
  int channels_ = 0;
  bool expand_animations_ = true;
};

absl::Status InferShape(ShapeContext& c) {
  RETURN_IF_ERROR(c.WithRank(c.input(0), 0).status());
  ASSIGN_OR_RETURN(const int64_t channels, c.Attr<int64_t>("channels"));
  if (channels < 0) return InvalidArgument("channels must be non-negative, got ", channels);
  ASSIGN_OR_RETURN(const bool may_have_frames, c.Attr<bool>("expand_animations"));
  c.SetOutput(
      0, may_have_frames ? PartialShape() : PartialShape({-1, -1, channels == 0 ? -1 : channels}));
  return absl::OkStatus();
}

}  // namespace

DEFINE_OP(DecodeImage) {
  op.Attr("channels: int = 0")
      .Attr("dtype: {uint8, uint16, float} = DT_UINT8")
      .Attr("expand_animations: bool = true")
      .Input("contents: string")
      .Output("image: dtype")
      .Doc("The pixels of a PNG, JPEG or BMP, or the frames of a GIF.")
      .Shape(InferShape)
      .NoGradient("pictures are bytes")
      .Cpu(New<DecodeImageKernel>());
}

}  // namespace muster
