// Depthwise convolutions on GPUs: launches of depthwise.cu.
#include <algorithm>
#include <array>
#include <limits>

#include "absl/strings/str_cat.h"

#include "muster/ops/conv/conv_gpu.h"
#include "muster/ops/conv/depthwise.h"
#include "muster/ops/gpu_kernel.h"

namespace muster {
namespace {

// As DepthwiseSize of depthwise.cu.
struct GpuDepthwiseSize {
  int32_t batch, height, width, channels, multiplier;
  int32_t filter_height, filter_width;
  int32_t out_height, out_width;
  int32_t stride_height, stride_width;
  int32_t dilation_height, dilation_width;
  int32_t pad_top, pad_left;
};

// Of depthwise.cu.
constexpr int64_t kLanes = 32, kRows = 8;
// Elements of the output's space that one part of a sum for the filter has at least, and how many
// parts there are at most.
constexpr int64_t kLeastCells = 512;
constexpr int64_t kMostParts = 1024;

DType SumType(DType dtype) {
  return dtype == DType::kDouble ? DType::kDouble : DType::kFloat;
}

class GpuDepthwise : public GpuKernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(attrs_, ReadConvAttrs(setup.node()));
    RETURN_IF_ERROR(CheckConvAttrs(attrs_));
    return GpuKernel::Init(setup);
  }

 protected:
  using Functions = std::array<const GpuFunction, 2>;  // for channels that come second, and last
  static std::string Name(const char* function, DType dtype, bool channels_last) {
    return absl::StrCat("Depthwise", function, "<", GpuTypeName(dtype),
                        channels_last ? ", true>" : ", false>");
  }
  static Functions Make(GpuKernel& kernel, const char* function, DType dtype) {
    return {{{kernel, kFile, Name(function, dtype, false)},
             {kernel, kFile, Name(function, dtype, true)}}};
  }

  absl::StatusOr<GpuDepthwiseSize> SizeOf(const ConvGeometry& g) const {
    RETURN_IF_ERROR(CheckGpuPaddings(g));
    const auto narrow = [](int64_t value) { return static_cast<int32_t>(value); };
    if (g.out_channels > kMost32 / 2 || g.filter_height * g.filter_width > kMost32 / 2) {
      return Unimplemented("a depthwise convolution with ", g.out_channels,
                           " outputs has no kernel for GPUs");
    }
    return GpuDepthwiseSize{narrow(g.batch),
                            narrow(g.height),
                            narrow(g.width),
                            narrow(g.channels),
                            narrow(g.out_channels / std::max<int64_t>(g.channels, 1)),
                            narrow(g.filter_height),
                            narrow(g.filter_width),
                            narrow(g.out_height),
                            narrow(g.out_width),
                            narrow(g.stride_height),
                            narrow(g.stride_width),
                            narrow(g.dilation_height),
                            narrow(g.dilation_width),
                            narrow(g.pad_top),
                            narrow(g.pad_left)};
  }
  bool is_last() const { return attrs_.data_format == "NHWC"; }
  absl::Status SetZero(Tensor& tensor) const {
    return gpu().Fill(tensor.raw(), 0, tensor.size_bytes());
  }

  static constexpr char kFile[] = "conv/depthwise.cu";
  static constexpr int64_t kMost32 = std::numeric_limits<int32_t>::max();
  ConvAttrs attrs_;
};

class GpuDepthwiseForward : public GpuDepthwise {
 public:
  explicit GpuDepthwiseForward(DType dtype) : run_(Make(*this, "Forward", dtype)) {}
  absl::Status Compute(KernelContext& c) override {
    const Tensor& images = c.input(0);
    const Tensor& filter = c.input(1);
    ASSIGN_OR_RETURN(const ConvGeometry g,
                     MakeDepthwiseGeometry(attrs_, images.shape(), filter.shape()));
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, OutputShape(attrs_, g)));
    const int64_t count = output->num_elements();
    if (count == 0) return absl::OkStatus();
    ASSIGN_OR_RETURN(const GpuDepthwiseSize size, SizeOf(g));
    return run_[is_last()].LaunchForEach(count, GpuIn(images), GpuIn(filter), GpuOut(*output),
                                         count, size);
  }

 private:
  const Functions run_;
};

class GpuDepthwiseBackpropInput : public GpuDepthwise {
 public:
  explicit GpuDepthwiseBackpropInput(DType dtype) : run_(Make(*this, "BackwardInput", dtype)) {}
  absl::Status Compute(KernelContext& c) override {
    const Tensor& filter = c.input(1);
    const Tensor& dy = c.input(2);
    ASSIGN_OR_RETURN(const Shape shape, DepthwiseInputShape(c.input(0)));
    ASSIGN_OR_RETURN(const ConvGeometry g,
                     MakeDepthwiseGeometry(attrs_, shape, filter.shape(), &dy.shape()));
    ASSIGN_OR_RETURN(Tensor* const dx, c.AllocateOutput(0, shape));
    const int64_t count = dx->num_elements();
    if (count == 0) return absl::OkStatus();
    ASSIGN_OR_RETURN(const GpuDepthwiseSize size, SizeOf(g));
    return run_[is_last()].LaunchForEach(count, GpuIn(filter), GpuIn(dy), GpuOut(*dx), count, size);
  }

 private:
  const Functions run_;
};

class GpuDepthwiseBackpropFilter : public GpuDepthwise {
 public:
  explicit GpuDepthwiseBackpropFilter(DType dtype)
      : run_(Make(*this, "BackwardFilter", dtype)),
        sum_(*this, kFile, absl::StrCat("SumFilterParts<", GpuTypeName(dtype), ">")) {}
  absl::Status Compute(KernelContext& c) override {
    const Tensor& images = c.input(0);
    const Tensor& dy = c.input(2);
    ASSIGN_OR_RETURN(const Shape shape, DepthwiseFilterShape(c.input(1)));
    ASSIGN_OR_RETURN(const ConvGeometry g,
                     MakeDepthwiseGeometry(attrs_, images.shape(), shape, &dy.shape()));
    ASSIGN_OR_RETURN(Tensor* const dw, c.AllocateOutput(0, shape));
    const int64_t count = dw->num_elements();
    if (count == 0) return absl::OkStatus();
    if (images.num_elements() == 0 || dy.num_elements() == 0) return SetZero(*dw);
    ASSIGN_OR_RETURN(const GpuDepthwiseSize size, SizeOf(g));
    const int64_t taps = g.filter_height * g.filter_width;
    const int64_t sets = is_last() ? (g.out_channels + kLanes - 1) / kLanes : g.out_channels;
    if (taps * sets > kMost32)
      return Unimplemented("a filter of shape ", shape.ToString(), " has no kernel for GPUs");
    // Enough blocks to fill the card, and no more parts than their memory is worth.
    const int64_t cells = g.batch * g.out_height * g.out_width;
    const int64_t wanted = gpu().multiprocessors() * int64_t{16} / (taps * sets) + 1;
    const int64_t useful = (cells + kLeastCells - 1) / kLeastCells;
    const int64_t most = std::min({wanted, useful, kMostParts});
    const int64_t each = (cells + most - 1) / most;
    const int64_t parts = (cells + each - 1) / each;
    ASSIGN_OR_RETURN(Tensor sums, c.AllocateTemporary(SumType(dw->dtype()), Shape({parts, count})));
    GpuGrid grid;
    grid.blocks_x = static_cast<unsigned>(taps * sets);
    grid.blocks_y = static_cast<unsigned>(parts);
    grid.threads_x = kLanes;
    grid.threads_y = kRows;
    RETURN_IF_ERROR(
        run_[is_last()].Launch(grid, GpuIn(images), GpuIn(dy), GpuOut(sums), each, size));
    return sum_.LaunchForEach(count, GpuIn(sums), GpuOut(*dw), count, static_cast<int32_t>(parts));
  }

 private:
  const Functions run_;
  const GpuFunction sum_;
};

}  // namespace

void AddGpuDepthwise(OpBuilder& op) {
  AddGpuFloats<GpuDepthwiseForward>(op);
}
void AddGpuDepthwiseBackpropInput(OpBuilder& op) {
  AddGpuFloats<GpuDepthwiseBackpropInput>(op);
}
void AddGpuDepthwiseBackpropFilter(OpBuilder& op) {
  AddGpuFloats<GpuDepthwiseBackpropFilter>(op);
}

}  // namespace muster
