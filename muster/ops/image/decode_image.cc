// Pictures: DecodePng, DecodeJpeg, DecodeAndCropJpeg, DecodeBmp, DecodeGif, ExtractJpegShape,
// EncodePng, EncodeJpeg.
#include <limits>

#include "muster/ops/image/image_codec.h"
#include "muster/ops/op.h"

namespace muster {
namespace {

absl::Status CheckScalar(const Tensor& contents, absl::string_view what) {
  if (contents.shape().is_scalar()) return absl::OkStatus();
  return InvalidArgument(what, " must be scalar but got shape ", contents.shape().ToString());
}

const char* FormatName(ImageFormat format) {
  switch (format) {
    case ImageFormat::kPng:
      return "PNG";
    case ImageFormat::kJpeg:
      return "JPEG";
    case ImageFormat::kGif:
      return "GIF";
    case ImageFormat::kBmp:
      return "BMP";
    case ImageFormat::kUnknown:
      break;
  }
  return "unknown";
}

// Decodes whatever the bytes turn out to be, as far as the op's own format allows it.
class DecodeKernel : public Kernel {
 public:
  explicit DecodeKernel(ImageFormat format) : format_(format) {}

  absl::Status Init(KernelSetup& s) override {
    dtype_ = s.output_type(0);
    op_ = s.node().op();
    if (format_ == ImageFormat::kGif) {
      jpeg_.channels = 3;
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(const int64_t channels, s.Attr<int64_t>("channels"));
    if (channels != 0 && channels != 1 && channels != 3 && channels != 4)
      return InvalidArgument("`channels` must be 0, 1, 3 or 4 but got ", channels);
    jpeg_.channels = static_cast<int>(channels);
    if (format_ != ImageFormat::kJpeg) return absl::OkStatus();
    ASSIGN_OR_RETURN(const int64_t ratio, s.Attr<int64_t>("ratio"));
    if (ratio != 1 && ratio != 2 && ratio != 4 && ratio != 8)
      return InvalidArgument("ratio must be 1, 2, 4, or 8, got ", ratio);
    jpeg_.ratio = static_cast<int>(ratio);
    ASSIGN_OR_RETURN(jpeg_.fancy_upscaling, s.Attr<bool>("fancy_upscaling"));
    ASSIGN_OR_RETURN(jpeg_.try_recover_truncated, s.Attr<bool>("try_recover_truncated"));
    ASSIGN_OR_RETURN(jpeg_.acceptable_fraction, s.Attr<float>("acceptable_fraction"));
    ASSIGN_OR_RETURN(const std::string dct, s.Attr<std::string>("dct_method"));
    if (!dct.empty() && dct != "INTEGER_FAST" && dct != "INTEGER_ACCURATE") {
      return InvalidArgument("dct_method must be one of {'', 'INTEGER_FAST', 'INTEGER_ACCURATE'}");
    }
    jpeg_.accurate = dct == "INTEGER_ACCURATE";
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    RETURN_IF_ERROR(CheckScalar(c.input(0), "`contents`"));
    const std::string& bytes = c.input(0).scalar<std::string>();
    if (bytes.empty()) return InvalidArgument("Input is empty.");
    if (bytes.size() > std::numeric_limits<int32_t>::max())
      return InvalidArgument("Input contents are too large for int: ", bytes.size());
    JpegDecoding jpeg = jpeg_;
    CropWindow crop;
    if (c.num_inputs() == 2) {
      const Tensor& window = c.input(1);
      if (window.rank() != 1 || window.num_elements() != 4) {
        return InvalidArgument("crop_window must have four elements, got shape ",
                               window.shape().ToString());
      }
      const int32_t* w = window.data<int32_t>();
      crop = {w[0], w[1], w[2], w[3]};
      jpeg.crop = &crop;
    }
    ASSIGN_OR_RETURN(Tensor image, Decode(bytes, jpeg));
    c.SetOutput(0, std::move(image));
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<Tensor> Decode(const std::string& bytes, const JpegDecoding& jpeg) const {
    const ImageFormat found = DetectImageFormat(bytes);
    if (jpeg.crop != nullptr && found != ImageFormat::kJpeg)
      return InvalidArgument("DecodeAndCropJpeg operation can run on JPEG only, but detected ",
                             FormatName(found), ".");
    switch (found) {
      case ImageFormat::kJpeg:
        RETURN_IF_ERROR(CheckNotBmp(found));
        if (jpeg.channels == 4)
          return InvalidArgument("channels must be 0, 1, or 3 for JPEG, got 4");
        return Finish(DecodeJpeg(bytes, jpeg));
      case ImageFormat::kPng:
        RETURN_IF_ERROR(CheckNotBmp(found));
        return Finish(DecodePng(bytes, jpeg.channels, dtype_));
      case ImageFormat::kGif:
        RETURN_IF_ERROR(CheckNotBmp(found));
        return Finish(DecodeStill(bytes, jpeg.channels));
      case ImageFormat::kBmp:
        if (jpeg.channels == 1)
          return InvalidArgument("`channels` must be 0, 3 or 4 for BMP, but got 1");
        if (format_ != ImageFormat::kBmp) {
          return InvalidArgument(
              "Trying to decode BMP format using a wrong op. Use `decode_bmp` or `decode_image` "
              "instead. Op used: ",
              op_);
        }
        return DecodeBmp(bytes, jpeg.channels);
      case ImageFormat::kUnknown:
        break;
    }
    return InvalidArgument("Unknown image file format. One of JPEG, PNG, GIF, BMP required.");
  }

  absl::Status CheckNotBmp(ImageFormat found) const {
    if (format_ != ImageFormat::kBmp) return absl::OkStatus();
    return InvalidArgument("Trying to decode ", FormatName(found),
                           " format using DecodeBmp op. Use `decode_image` instead.");
  }

  // As the op wants it: frames, and 16 bits.
  absl::StatusOr<Tensor> Finish(absl::StatusOr<Tensor> decoded) const {
    RETURN_IF_ERROR(decoded.status());
    Tensor image = *std::move(decoded);
    if (format_ == ImageFormat::kGif && image.rank() == 3) {
      Shape shape = image.shape();
      shape.Insert(0, 1);
      image = image.Reshaped(shape);
    }
    if (image.dtype() == dtype_) return image;
    ASSIGN_OR_RETURN(Tensor wide, Tensor::Make(dtype_, image.shape()));
    for (int64_t i = 0; i < image.num_elements(); ++i)
      wide.data<uint16_t>()[i] = static_cast<uint16_t>(image.data<uint8_t>()[i] << 8);
    return wide;
  }

  absl::StatusOr<Tensor> DecodeStill(const std::string& bytes, int channels) const {
    if (channels != 0 && channels != 3)
      return InvalidArgument("channels must be 0 or 3 for GIF, got ", channels);
    ASSIGN_OR_RETURN(Tensor frames, DecodeGif(bytes));
    if (format_ == ImageFormat::kGif) return frames;
    if (frames.dim(0) > 1) {
      return InvalidArgument("Got ", frames.dim(0),
                             " frames, but animated gifs can only be decoded by tf.io.decode_gif "
                             "or tf.io.decode_image");
    }
    return frames.Reshaped(Shape({frames.dim(1), frames.dim(2), 3}));
  }

  const ImageFormat format_;
  DType dtype_ = DType::kUint8;
  std::string op_;
  JpegDecoding jpeg_;
};

template <ImageFormat kFormat>
KernelFactory Decoder() {
  return [] { return std::make_unique<DecodeKernel>(kFormat); };
}

absl::Status RunJpegShape(KernelContext& c) {
  RETURN_IF_ERROR(CheckScalar(c.input(0), "contents"));
  ASSIGN_OR_RETURN(const JpegSize size, ReadJpegSize(c.input(0).scalar<std::string>()));
  ASSIGN_OR_RETURN(Tensor* const shape, c.AllocateOutput(0, Shape({3})));
  const int dims[] = {size.height, size.width, size.channels};
  for (int i = 0; i < 3; ++i) {
    if (shape->dtype() == DType::kInt32) {
      shape->data<int32_t>()[i] = dims[i];
    } else {
      shape->data<int64_t>()[i] = dims[i];
    }
  }
  return absl::OkStatus();
}

class EncodePngKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& s) override {
    ASSIGN_OR_RETURN(const int64_t compression, s.Attr<int64_t>("compression"));
    if (compression < -1 || compression > 9)
      return InvalidArgument("compression should be in [-1,9], got ", compression);
    compression_ = static_cast<int>(compression);
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    const Tensor& images = c.input(0);
    const int rank = images.rank();
    if (rank < 3)
      return InvalidArgument("images must be at least rank 3 but got ", images.shape().ToString());
    const int64_t height = images.dim(rank - 3);
    const int64_t width = images.dim(rank - 2);
    const int64_t channels = images.dim(rank - 1);
    if (channels < 1 || channels > 4)
      return InvalidArgument("image must have 1, 2, 3, or 4 channels, got ", channels);
    const Shape batch(absl::Span<const int64_t>(images.shape().dims()).first(rank - 3));
    ASSIGN_OR_RETURN(Tensor* const contents, c.AllocateOutput(0, batch));
    const int64_t bytes =
        height * width * channels * static_cast<int64_t>(DTypeSize(images.dtype()));
    for (int64_t i = 0; i < batch.num_elements(); ++i) {
      ASSIGN_OR_RETURN(contents->data<std::string>()[i],
                       EncodePng(images.raw() + i * bytes, images.dtype(), height, width,
                                 static_cast<int>(channels), compression_));
    }
    return absl::OkStatus();
  }

 private:
  int compression_ = -1;
};

class EncodeJpegKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& s) override {
    ASSIGN_OR_RETURN(const std::string format, s.Attr<std::string>("format"));
    channels_ = format == "grayscale" ? 1 : format == "rgb" ? 3 : 0;
    ASSIGN_OR_RETURN(const int64_t quality, s.Attr<int64_t>("quality"));
    if (quality < 0 || quality > 100)
      return InvalidArgument("quality must be in [0,100], got ", quality);
    how_.quality = static_cast<int>(quality);
    ASSIGN_OR_RETURN(how_.progressive, s.Attr<bool>("progressive"));
    ASSIGN_OR_RETURN(how_.optimize_size, s.Attr<bool>("optimize_size"));
    ASSIGN_OR_RETURN(how_.chroma_downsampling, s.Attr<bool>("chroma_downsampling"));
    ASSIGN_OR_RETURN(const std::string unit, s.Attr<std::string>("density_unit"));
    how_.density_in_cm = unit == "cm";
    ASSIGN_OR_RETURN(const int64_t x_density, s.Attr<int64_t>("x_density"));
    ASSIGN_OR_RETURN(const int64_t y_density, s.Attr<int64_t>("y_density"));
    how_.x_density = static_cast<int>(x_density);
    how_.y_density = static_cast<int>(y_density);
    ASSIGN_OR_RETURN(how_.xmp_metadata, s.Attr<std::string>("xmp_metadata"));
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    const Tensor& image = c.input(0);
    if (image.rank() != 3)
      return InvalidArgument("image must be 3-dimensional", image.shape().ToString());
    const int64_t channels = image.dim(2);
    JpegEncoding how = how_;
    how.channels = channels_;
    if (channels_ == 0) {
      if (channels != 1 && channels != 3) {
        return InvalidArgument("image must have 1 or 3 channels, got ", image.shape().ToString());
      }
      how.channels = static_cast<int>(channels);
    } else if (channels != channels_) {
      return InvalidArgument("format ", channels_ == 1 ? "'grayscale'" : "'rgb'", " expects ",
                             channels_, " channels, got ", image.shape().ToString());
    }
    ASSIGN_OR_RETURN(std::string bytes,
                     EncodeJpeg(image.data<uint8_t>(), image.dim(0), image.dim(1), how));
    c.SetOutput(0, Tensor::Scalar<std::string>(std::move(bytes)));
    return absl::OkStatus();
  }

 private:
  int channels_ = 0;
  JpegEncoding how_;
};

absl::Status DecodedShape(ShapeContext& c) {
  RETURN_IF_ERROR(c.WithRank(c.input(0), 0).status());
  ASSIGN_OR_RETURN(const int64_t channels, c.Attr<int64_t>("channels"));
  if (channels < 0) return InvalidArgument("channels must be non-negative, got ", channels);
  c.SetOutput(0, PartialShape({-1, -1, channels == 0 ? -1 : channels}));
  return absl::OkStatus();
}

absl::Status CroppedShape(ShapeContext& c) {
  RETURN_IF_ERROR(DecodedShape(c));
  ASSIGN_OR_RETURN(const PartialShape window, c.WithRank(c.input(1), 1));
  RETURN_IF_ERROR(ShapeContext::MergeDims(window.dim(0), 4).status());
  const std::optional<Tensor> crop = c.ConstantInput(1);
  if (!crop || crop->num_elements() != 4) return absl::OkStatus();
  ASSIGN_OR_RETURN(const int64_t channels, c.Attr<int64_t>("channels"));
  const int32_t* w = crop->data<int32_t>();
  if (w[2] < 0 || w[3] < 0) return InvalidArgument("Dimension -1 must be >= 0");
  c.SetOutput(0, PartialShape({w[2], w[3], channels == 0 ? -1 : channels}));
  return absl::OkStatus();
}

absl::Status GifShape(ShapeContext& c) {
  RETURN_IF_ERROR(c.WithRank(c.input(0), 0).status());
  c.SetOutput(0, PartialShape({-1, -1, -1, 3}));
  return absl::OkStatus();
}

absl::Status JpegShapeShape(ShapeContext& c) {
  RETURN_IF_ERROR(c.WithRank(c.input(0), 0).status());
  c.SetOutput(0, PartialShape::Vector(3));
  return absl::OkStatus();
}

absl::Status EncodedShape(ShapeContext& c) {
  RETURN_IF_ERROR(c.WithRank(c.input(0), 3).status());
  c.SetOutput(0, PartialShape::Scalar());
  return absl::OkStatus();
}

absl::Status EncodedPngShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(const PartialShape images, c.WithRankAtLeast(c.input(0), 3));
  c.SetOutput(0, ShapeContext::Subshape(images, 0, -3));
  return absl::OkStatus();
}

}  // namespace

DEFINE_OP(DecodePng) {
  op.Attr("channels: int = 0")
      .Attr("dtype: {uint8, uint16} = DT_UINT8")
      .Input("contents: string")
      .Output("image: dtype")
      .Doc("The pixels of a PNG.")
      .Shape(DecodedShape)
      .NoGradient("pictures are bytes")
      .Cpu(Decoder<ImageFormat::kPng>());
}

DEFINE_OP(DecodeJpeg) {
  op.Attr("channels: int = 0")
      .Attr("ratio: int = 1")
      .Attr("fancy_upscaling: bool = true")
      .Attr("try_recover_truncated: bool = false")
      .Attr("acceptable_fraction: float = 1.0")
      .Attr("dct_method: string = ''")
      .Input("contents: string")
      .Output("image: uint8")
      .Doc("The pixels of a JPEG.")
      .Shape(DecodedShape)
      .NoGradient("pictures are bytes")
      .Cpu(Decoder<ImageFormat::kJpeg>());
}

DEFINE_OP(DecodeAndCropJpeg) {
  op.Attr("channels: int = 0")
      .Attr("ratio: int = 1")
      .Attr("fancy_upscaling: bool = true")
      .Attr("try_recover_truncated: bool = false")
      .Attr("acceptable_fraction: float = 1.0")
      .Attr("dct_method: string = ''")
      .Input("contents: string")
      .Input("crop_window: int32")
      .Output("image: uint8")
      .Doc("The pixels of a JPEG inside a window.")
      .Shape(CroppedShape)
      .NoGradient("pictures are bytes")
      .Cpu(Decoder<ImageFormat::kJpeg>());
}

DEFINE_OP(DecodeBmp) {
  op.Attr("channels: int = 0")
      .Input("contents: string")
      .Output("image: uint8")
      .Doc("The pixels of a BMP.")
      .Shape(DecodedShape)
      .Cpu(Decoder<ImageFormat::kBmp>());
}

DEFINE_OP(DecodeGif) {
  op.Input("contents: string")
      .Output("image: uint8")
      .Doc("The frames of a GIF.")
      .Shape(GifShape)
      .Cpu(Decoder<ImageFormat::kGif>());
}

DEFINE_OP(ExtractJpegShape) {
  op.Attr("output_type: {int32, int64} = DT_INT32")
      .Input("contents: string")
      .Output("image_shape: output_type")
      .Doc("Height, width and channels of a JPEG, without decoding it.")
      .Shape(JpegShapeShape)
      .NoGradient("sizes are integers")
      .Cpu(RunJpegShape);
}

DEFINE_OP(EncodePng) {
  op.Attr("compression: int = -1")
      .Attr("T: {uint8, uint16} = DT_UINT8")
      .Input("image: T")
      .Output("contents: string")
      .Doc("A picture as PNG.")
      .Shape(EncodedPngShape)
      .NoGradient("pictures are bytes")
      .Cpu(New<EncodePngKernel>());
}

DEFINE_OP(EncodeJpeg) {
  op.Attr("format: {'', 'grayscale', 'rgb'} = ''")
      .Attr("quality: int = 95")
      .Attr("progressive: bool = false")
      .Attr("optimize_size: bool = false")
      .Attr("chroma_downsampling: bool = true")
      .Attr("density_unit: {'in', 'cm'} = 'in'")
      .Attr("x_density: int = 300")
      .Attr("y_density: int = 300")
      .Attr("xmp_metadata: string = ''")
      .Input("image: uint8")
      .Output("contents: string")
      .Doc("A picture as JPEG.")
      .Shape(EncodedShape)
      .NoGradient("pictures are bytes")
      .Cpu(New<EncodeJpegKernel>());
}

}  // namespace muster
