#include "muster/ops/conv/conv_gpu.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"

#include "muster/ops/gpu_kernel.h"
#include "muster/ops/linalg/cublas.h"

namespace muster {
namespace {

// Elements of the matrix of windows: enough to fill a card, and their number fits 32 bits.
constexpr int64_t kMostElements = int64_t{1} << 26;

// As ConvSize of conv.cu.
struct GpuConvSize {
  int32_t batch, height, width, channels;
  int32_t filter_height, filter_width;
  int32_t out_height, out_width;
  int32_t stride_height, stride_width;
  int32_t dilation_height, dilation_width;
  int32_t pad_top, pad_left;
};

std::string OfType(const char* function, DType dtype) {
  return absl::StrCat(function, "<", GpuTypeName(dtype), ">");
}

const void* At(const Tensor& tensor, int64_t elements) {
  return tensor.raw() + elements * static_cast<int64_t>(DTypeSize(tensor.dtype()));
}
void* OutAt(Tensor& tensor, int64_t elements) {
  return tensor.raw() + elements * static_cast<int64_t>(DTypeSize(tensor.dtype()));
}

class GpuConv : public GpuKernel {
 public:
  explicit GpuConv(DType dtype)
      : to_rows_(*this, "conv/conv.cu", OfType("ImageToRows", dtype)),
        to_image_(*this, "conv/conv.cu", OfType("RowsToImage", dtype)),
        swap_(*this, "conv/conv.cu", OfType("SwapInner", dtype)) {}
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(attrs_, ReadConvAttrs(setup.node()));
    RETURN_IF_ERROR(CheckConvAttrs(attrs_));
    RETURN_IF_ERROR(GpuKernel::Init(setup));
    return PrepareGpuProducts(gpu());
  }

 protected:
  bool is_nchw() const { return attrs_.data_format == "NCHW"; }

  // `image` as NHWC.
  absl::StatusOr<Tensor> ToNhwc(KernelContext& c, const Tensor& image) const {
    if (!is_nchw()) return image;
    const Shape& s = image.shape();
    ASSIGN_OR_RETURN(Tensor swapped,
                     c.AllocateTemporary(image.dtype(), Shape({s[0], s[2], s[3], s[1]})));
    RETURN_IF_ERROR(Swap(image, swapped, s[1], s[2] * s[3]));
    return swapped;
  }
  // Where a kernel puts its NHWC result before it becomes `output`.
  absl::StatusOr<Tensor> ResultFor(KernelContext& c, const Tensor& output) const {
    if (!is_nchw()) return output;
    const Shape& s = output.shape();
    return c.AllocateTemporary(output.dtype(), Shape({s[0], s[2], s[3], s[1]}));
  }
  absl::Status Finish(const Tensor& result, Tensor& output) const {
    if (!is_nchw()) return absl::OkStatus();
    const Shape& s = output.shape();
    return Swap(result, output, s[2] * s[3], s[1]);
  }

  // Calls `run` with parts of the batch: the first image, and how many.
  static absl::Status ForParts(const ConvGeometry& g,
                               absl::FunctionRef<absl::Status(int64_t, int64_t)> run) {
    const int64_t elements = g.out_height * g.out_width * Columns(g);
    const int64_t most = IsPlain(g) ? g.batch : std::max<int64_t>(1, kMostElements / elements);
    for (int64_t first = 0; first < g.batch; first += most)
      RETURN_IF_ERROR(run(first, std::min(most, g.batch - first)));
    return absl::OkStatus();
  }
  static int64_t Columns(const ConvGeometry& g) {
    return g.filter_height * g.filter_width * g.channels;
  }
  // The images are the matrix of windows themselves.
  static bool IsPlain(const ConvGeometry& g) {
    return g.filter_height == 1 && g.filter_width == 1 && g.stride_height == 1 &&
           g.stride_width == 1 && g.pad_top == 0 && g.pad_bottom == 0 && g.pad_left == 0 &&
           g.pad_right == 0;
  }
  static absl::Status CheckSupported(const ConvGeometry& g) {
    if (g.groups > 1)
      return Unimplemented("convolutions in ", g.groups, " groups have no kernel for GPUs");
    constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
    if (std::max({g.pad_top, g.pad_bottom, g.pad_left, g.pad_right}) > kMost / 4)
      return InvalidArgument("explicit_paddings are too large");
    if (!IsPlain(g) && g.out_height * g.out_width * Columns(g) > kMost)
      return Unimplemented("a convolution with ", g.out_height * g.out_width * Columns(g),
                           " elements in the windows of an image has no kernel for GPUs");
    return absl::OkStatus();
  }

  absl::StatusOr<Tensor> AllocateRows(KernelContext& c, const ConvGeometry& g, DType dtype) const {
    const int64_t elements = g.out_height * g.out_width * Columns(g);
    const int64_t images = std::clamp<int64_t>(kMostElements / elements, 1, g.batch);
    return c.AllocateTemporary(dtype, Shape({images * g.out_height * g.out_width, Columns(g)}));
  }
  absl::Status ImagesToRows(const ConvGeometry& g, const Tensor& images, int64_t first,
                            int64_t count, Tensor& rows) const {
    const GpuConvSize size = SizeOf(g, count);
    return to_rows_.LaunchForEach(count * g.out_height * g.out_width * Columns(g),
                                  At(images, first * g.image_size()), GpuOut(rows), size);
  }
  absl::Status RowsToImages(const ConvGeometry& g, const Tensor& rows, int64_t first, int64_t count,
                            Tensor& images) const {
    const GpuConvSize size = SizeOf(g, count);
    return to_image_.LaunchForEach(count * g.image_size(), GpuIn(rows),
                                   OutAt(images, first * g.image_size()), size);
  }
  absl::Status SetZero(Tensor& tensor) const {
    return gpu().Fill(tensor.raw(), 0, tensor.size_bytes());
  }

  ConvAttrs attrs_;

 private:
  static GpuConvSize SizeOf(const ConvGeometry& g, int64_t count) {
    const auto narrow = [](int64_t value) { return static_cast<int32_t>(value); };
    return {narrow(count),          narrow(g.height),          narrow(g.width),
            narrow(g.channels),     narrow(g.filter_height),   narrow(g.filter_width),
            narrow(g.out_height),   narrow(g.out_width),       narrow(g.stride_height),
            narrow(g.stride_width), narrow(g.dilation_height), narrow(g.dilation_width),
            narrow(g.pad_top),      narrow(g.pad_left)};
  }
  absl::Status Swap(const Tensor& from, Tensor& to, int64_t rows, int64_t columns) const {
    return swap_.LaunchForEach(from.num_elements(), GpuIn(from), GpuOut(to), from.num_elements(),
                               static_cast<int32_t>(rows), static_cast<int32_t>(columns));
  }

  GpuFunction to_rows_, to_image_, swap_;
};

class GpuConv2D : public GpuConv {
 public:
  using GpuConv::GpuConv;
  absl::Status Compute(KernelContext& c) override {
    const Tensor& filter = c.input(1);
    ASSIGN_OR_RETURN(const ConvGeometry g,
                     MakeConvGeometry(attrs_, c.input(0).shape(), filter.shape()));
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, OutputShape(attrs_, g)));
    if (output->num_elements() == 0) return absl::OkStatus();
    if (g.filter_size() == 0 || g.image_size() == 0) return SetZero(*output);
    RETURN_IF_ERROR(CheckSupported(g));
    ASSIGN_OR_RETURN(const Tensor images, ToNhwc(c, c.input(0)));
    ASSIGN_OR_RETURN(Tensor result, ResultFor(c, *output));
    Tensor rows;
    if (!IsPlain(g)) {
      ASSIGN_OR_RETURN(rows, AllocateRows(c, g, images.dtype()));
    }
    const absl::Status done = ForParts(g, [&](int64_t first, int64_t count) -> absl::Status {
      if (rows.valid()) RETURN_IF_ERROR(ImagesToRows(g, images, first, count, rows));
      GpuProducts product;
      product.shape.m = count * g.out_height * g.out_width;
      product.shape.n = g.out_channels;
      product.shape.k = Columns(g);
      product.a = rows.valid() ? GpuIn(rows) : At(images, first * g.image_size());
      product.b = filter.raw();
      product.c = OutAt(result, first * g.output_size());
      return MultiplyOnGpu(gpu(), images.dtype(), product);
    });
    return done.ok() ? Finish(result, *output) : done;
  }
};

class GpuConv2DBackpropInput : public GpuConv {
 public:
  using GpuConv::GpuConv;
  absl::Status Compute(KernelContext& c) override {
    const Tensor& filter = c.input(1);
    RETURN_IF_ERROR(CheckConvOutBackprop(c.input(2).shape()));
    ASSIGN_OR_RETURN(const Shape shape,
                     ConvInputShape(attrs_, c.input(0), filter.shape(), c.input(2).shape()));
    ASSIGN_OR_RETURN(const ConvGeometry g,
                     MakeConvGeometry(attrs_, shape, filter.shape(), &c.input(2).shape()));
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, shape));
    if (output->num_elements() == 0) return absl::OkStatus();
    if (g.filter_size() == 0 || g.output_size() == 0) return SetZero(*output);
    RETURN_IF_ERROR(CheckSupported(g));
    ASSIGN_OR_RETURN(const Tensor dy, ToNhwc(c, c.input(2)));
    ASSIGN_OR_RETURN(Tensor result, ResultFor(c, *output));
    Tensor rows;
    if (!IsPlain(g)) {
      ASSIGN_OR_RETURN(rows, AllocateRows(c, g, dy.dtype()));
    }
    const absl::Status done = ForParts(g, [&](int64_t first, int64_t count) -> absl::Status {
      GpuProducts product;
      product.shape.m = count * g.out_height * g.out_width;
      product.shape.n = Columns(g);
      product.shape.k = g.out_channels;
      product.shape.transpose_b = true;
      product.a = At(dy, first * g.output_size());
      product.b = filter.raw();
      product.c = rows.valid() ? GpuOut(rows) : OutAt(result, first * g.image_size());
      RETURN_IF_ERROR(MultiplyOnGpu(gpu(), dy.dtype(), product));
      return rows.valid() ? RowsToImages(g, rows, first, count, result) : absl::OkStatus();
    });
    return done.ok() ? Finish(result, *output) : done;
  }
};

class GpuConv2DBackpropFilter : public GpuConv {
 public:
  using GpuConv::GpuConv;
  absl::Status Compute(KernelContext& c) override {
    ASSIGN_OR_RETURN(const Shape shape, ConvFilterShape(c.input(1)));
    ASSIGN_OR_RETURN(const ConvGeometry g,
                     MakeConvGeometry(attrs_, c.input(0).shape(), shape, &c.input(2).shape()));
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, shape));
    if (output->num_elements() == 0) return absl::OkStatus();
    if (c.input(0).num_elements() == 0 || c.input(2).num_elements() == 0) return SetZero(*output);
    RETURN_IF_ERROR(CheckSupported(g));
    ASSIGN_OR_RETURN(const Tensor images, ToNhwc(c, c.input(0)));
    ASSIGN_OR_RETURN(const Tensor dy, ToNhwc(c, c.input(2)));
    Tensor rows;
    if (!IsPlain(g)) {
      ASSIGN_OR_RETURN(rows, AllocateRows(c, g, images.dtype()));
    }
    return ForParts(g, [&](int64_t first, int64_t count) -> absl::Status {
      if (rows.valid()) RETURN_IF_ERROR(ImagesToRows(g, images, first, count, rows));
      GpuProducts product;
      product.shape.m = Columns(g);
      product.shape.n = g.out_channels;
      product.shape.k = count * g.out_height * g.out_width;
      product.shape.transpose_a = true;
      product.a = rows.valid() ? GpuIn(rows) : At(images, first * g.image_size());
      product.b = At(dy, first * g.output_size());
      product.c = output->raw();
      product.adds = first > 0;
      return MultiplyOnGpu(gpu(), images.dtype(), product);
    });
  }
};

template <typename K>
void AddGpuKernels(OpBuilder& op) {
  op.GpuTypes(
      "T", {DType::kHalf, DType::kBfloat16, DType::kFloat, DType::kDouble},
      [](DType dtype) -> KernelFactory { return [dtype] { return std::make_unique<K>(dtype); }; });
}

}  // namespace

void AddGpuConv2D(OpBuilder& op) {
  AddGpuKernels<GpuConv2D>(op);
}
void AddGpuConv2DBackpropInput(OpBuilder& op) {
  AddGpuKernels<GpuConv2DBackpropInput>(op);
}
void AddGpuConv2DBackpropFilter(OpBuilder& op) {
  AddGpuKernels<GpuConv2DBackpropFilter>(op);
}

}  // namespace muster
