#include "muster/ops/conv/conv_gpu.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"

#include "muster/ops/conv/fused_conv2d.h"
#include "muster/ops/conv/gpu_convolver.h"
#include "muster/ops/linalg/cublas.h"

namespace muster {
namespace {

// Elements of the matrix of windows: enough to fill a card, and their number fits 32 bits.
constexpr int64_t kMostElements = int64_t{1} << 26;
constexpr int64_t kWide = 4;  // as in conv.cu
constexpr int64_t kMost32 = std::numeric_limits<int32_t>::max();

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
      : convolver_(*this, dtype),
        to_rows_(*this, "conv/conv.cu", OfType("ImageToRows", dtype)),
        to_image_(*this, "conv/conv.cu", OfType("RowsToImage", dtype)),
        swap_(*this, "conv/conv.cu", OfType("SwapInner", dtype)) {}
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(attrs_, ReadConvAttrs(setup.node()));
    RETURN_IF_ERROR(CheckConvAttrs(attrs_));
    RETURN_IF_ERROR(GpuKernel::Init(setup));
    has_cudnn_ = convolver_.Init(gpu()).ok();
    return has_cudnn_ ? absl::OkStatus() : PrepareGpuProducts(gpu());
  }

 protected:
  bool is_nchw() const { return attrs_.data_format == "NCHW"; }
  // cuDNN's part in it: false where the convolution is left to matrix products. `run` is called
  // with the convolver and its sizes.
  template <typename Run>
  absl::StatusOr<bool> TryCudnn(const ConvGeometry& g, Run run) const {
    if (has_cudnn_) {
      GpuConvSizes s;
      s.channels_last = !is_nchw();
      s.batch = g.batch;
      s.channels = g.channels;
      s.filter_channels = g.filter_channels;
      s.out_channels = g.out_channels;
      s.size = {g.height, g.width};
      s.window = {g.filter_height, g.filter_width};
      s.out = {g.out_height, g.out_width};
      s.stride = {g.stride_height, g.stride_width};
      s.dilation = {g.dilation_height, g.dilation_width};
      s.pad_before = {g.pad_top, g.pad_left};
      s.pad_after = {g.pad_bottom, g.pad_right};
      ASSIGN_OR_RETURN(const bool is_done, run(convolver_, s));
      if (is_done) return true;
      RETURN_IF_ERROR(PrepareGpuProducts(gpu()));
    }
    RETURN_IF_ERROR(CheckSupported(g));
    return false;
  }

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
  // By matrix products.
  static absl::Status CheckSupported(const ConvGeometry& g) {
    if (g.groups > 1) {
      return Unimplemented("convolutions in ", g.groups,
                           " groups need cuDNN on GPUs, which is missing or has no kernel for "
                           "them: `make setup-gpu` installs it");
    }
    if (!IsPlain(g) && g.out_height * g.out_width * Columns(g) > kMost32)
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
    const int64_t elements = count * g.out_height * g.out_width * Columns(g);
    const bool is_wide = g.channels % kWide == 0;
    return to_rows_.LaunchForEach(is_wide ? elements / kWide : elements,
                                  At(images, first * g.image_size()), GpuOut(rows), size, is_wide);
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

  GpuConvolver convolver_;
  bool has_cudnn_ = false;
  GpuFunction to_rows_, to_image_, swap_;
};

class GpuConv2D : public GpuConv {
 public:
  using GpuConv::GpuConv;
  absl::Status Compute(KernelContext& c) override {
    ASSIGN_OR_RETURN(const ConvGeometry g,
                     MakeConvGeometry(attrs_, c.input(0).shape(), c.input(1).shape()));
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, OutputShape(attrs_, g)));
    return output->num_elements() == 0 ? absl::OkStatus() : Convolve(c, g, *output);
  }

 protected:
  // Into `output`, which is not empty.
  absl::Status Convolve(KernelContext& c, const ConvGeometry& g, Tensor& output) const {
    const Tensor& filter = c.input(1);
    if (g.filter_size() == 0 || g.image_size() == 0) return SetZero(output);
    RETURN_IF_ERROR(CheckGpuPaddings(g));
    ASSIGN_OR_RETURN(const bool is_done,
                     TryCudnn(g, [&](const GpuConvolver& cudnn, const GpuConvSizes& sizes) {
                       return cudnn.Forward(c, sizes, c.input(0), filter, output);
                     }));
    if (is_done) return absl::OkStatus();
    ASSIGN_OR_RETURN(const Tensor images, ToNhwc(c, c.input(0)));
    ASSIGN_OR_RETURN(Tensor result, ResultFor(c, output));
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
    return done.ok() ? Finish(result, output) : done;
  }
};

// As FusedArguments of fused_conv2d.cu.
struct FusedArguments {
  const void *first, *second, *third, *fourth;
  const void* added;
  int64_t count, channels, inner;
  float epsilon, alpha;
  int32_t batch_norm, activation;
};

class GpuFusedConv2D : public GpuConv2D {
 public:
  explicit GpuFusedConv2D(DType dtype)
      : GpuConv2D(dtype),
        dtype_(dtype),
        finish_(*this, "conv/fused_conv2d.cu", OfType("FinishConv", dtype)) {}
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(const std::string filter_format, setup.Attr<std::string>("filter_format"));
    if (filter_format != "HWIO") {
      return Unimplemented("Fused Conv2D on a GPU supports HWIO filters only, but was given ",
                           filter_format);
    }
    RETURN_IF_ERROR(GpuConv2D::Init(setup));
    ASSIGN_OR_RETURN(fused_, ReadFusedConv(setup, dtype_));
    return absl::OkStatus();
  }
  absl::Status Compute(KernelContext& c) override {
    ASSIGN_OR_RETURN(const ConvGeometry g,
                     MakeConvGeometry(attrs_, c.input(0).shape(), c.input(1).shape()));
    RETURN_IF_ERROR(CheckFusedArguments(c, fused_, g.out_channels, OutputShape(attrs_, g)));
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, OutputShape(attrs_, g)));
    const int64_t count = output->num_elements();
    if (count == 0) return absl::OkStatus();
    RETURN_IF_ERROR(Convolve(c, g, *output));
    FusedArguments a{};
    a.first = GpuIn(c.input(2));
    if (fused_.batch_norm) {
      a.second = GpuIn(c.input(3));
      a.third = GpuIn(c.input(4));
      a.fourth = GpuIn(c.input(5));
    }
    if (fused_.adds) a.added = GpuIn(c.input(3));
    a.count = count;
    a.channels = g.out_channels;
    a.inner = is_nchw() ? g.out_height * g.out_width : 1;
    a.epsilon = fused_.epsilon;
    a.alpha = fused_.alpha;
    a.batch_norm = fused_.batch_norm ? 1 : 0;
    a.activation = static_cast<int32_t>(fused_.activation);
    return finish_.LaunchForEach(count, GpuOut(*output), a);
  }

 private:
  const DType dtype_;
  const GpuFunction finish_;
  FusedConv fused_;
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
    RETURN_IF_ERROR(CheckGpuPaddings(g));
    ASSIGN_OR_RETURN(const bool is_done,
                     TryCudnn(g, [&](const GpuConvolver& cudnn, const GpuConvSizes& sizes) {
                       return cudnn.BackwardInput(c, sizes, filter, c.input(2), *output);
                     }));
    if (is_done) return absl::OkStatus();
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
    RETURN_IF_ERROR(CheckGpuPaddings(g));
    // cuDNN keeps few multiprocessors busy where a small filter has many windows.
    std::function<absl::Status()> by_products;
    if (g.groups == 1 && !IsPlain(g) &&
        g.batch * g.out_height * g.out_width * Columns(g) <= kMostToCompare &&
        PrepareGpuProducts(gpu()).ok())
      by_products = [&] { return Multiply(c, g, *output); };
    ASSIGN_OR_RETURN(
        const bool is_done, TryCudnn(g, [&](const GpuConvolver& cudnn, const GpuConvSizes& sizes) {
          return cudnn.BackwardFilter(c, sizes, c.input(0), c.input(2), *output, by_products);
        }));
    return is_done ? absl::OkStatus() : Multiply(c, g, *output);
  }

 private:
  // Elements of the matrix of windows: what it is no loss to have in memory.
  static constexpr int64_t kMostToCompare = int64_t{1} << 24;

  absl::Status Multiply(KernelContext& c, const ConvGeometry& g, Tensor& output) const {
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
      product.c = output.raw();
      product.adds = first > 0;
      return MultiplyOnGpu(gpu(), images.dtype(), product);
    });
  }
};

}  // namespace

void AddGpuConv2D(OpBuilder& op) {
  AddGpuFloats<GpuConv2D>(op);
}
void AddGpuFusedConv2D(OpBuilder& op) {
  op.GpuTypes("T", {DType::kHalf, DType::kFloat, DType::kDouble}, [](DType dtype) -> KernelFactory {
    return [dtype] { return std::make_unique<GpuFusedConv2D>(dtype); };
  });
}
void AddGpuConv2DBackpropInput(OpBuilder& op) {
  AddGpuFloats<GpuConv2DBackpropInput>(op);
}
void AddGpuConv2DBackpropFilter(OpBuilder& op) {
  AddGpuFloats<GpuConv2DBackpropFilter>(op);
}

}  // namespace muster
