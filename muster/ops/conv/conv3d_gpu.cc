// Conv3D and its gradients on GPUs, by cuDNN: unlike on CPUs with channels in either place,
// dilations and groups.
#include "muster/ops/conv/conv3d_geometry.h"
#include "muster/ops/conv/conv_gpu.h"
#include "muster/ops/conv/gpu_convolver.h"

namespace muster {
namespace {

class GpuConv3DKernel : public GpuKernel {
 public:
  explicit GpuConv3DKernel(DType dtype) : convolver_(*this, dtype) {}

 protected:
  absl::Status Start(KernelSetup& setup) {
    RETURN_IF_ERROR(GpuKernel::Init(setup));
    return Prefixed(convolver_.Init(gpu()), absl::StrCat(setup.node().op(), " on a GPU: "));
  }
  // The shapes were checked.
  absl::StatusOr<GpuConvSizes> SizesOf(const Shape& input, const Shape& filter,
                                       const Shape& output) const {
    GpuConvSizes s;
    s.space = 3;
    s.channels_last = attrs_.data_format == "NDHWC";
    s.batch = input.dim(0);
    s.channels = input.dim(attrs_.channels());
    s.filter_channels = filter.dim(3);
    s.out_channels = filter.dim(4);
    const int64_t groups = s.channels / s.filter_channels;
    if (groups == 0 || s.out_channels % groups != 0) {
      return InvalidArgument("output depth must be evenly divisible by number of groups: ",
                             s.out_channels, " vs ", groups);
    }
    for (int i = 0; i < 3; ++i) {
      const int axis = attrs_.space() + i;
      s.size[i] = input.dim(axis);
      s.window[i] = filter.dim(i);
      s.out[i] = output.dim(axis);
      s.stride[i] = attrs_.strides[axis];
      s.dilation[i] = attrs_.dilations[axis];
      ASSIGN_OR_RETURN(
          const WindowSize size,
          WindowedOutputSize(s.size[i], s.window[i], s.dilation[i], s.stride[i], attrs_.padding));
      s.pad_before[i] = size.padding_before;
      s.pad_after[i] = size.padding_after;
    }
    return s;
  }
  static absl::Status Done(const absl::StatusOr<bool>& is_done) {
    RETURN_IF_ERROR(is_done.status());
    if (*is_done) return absl::OkStatus();
    return Unimplemented("cuDNN has no kernel for a convolution of these sizes");
  }
  absl::Status SetZero(Tensor& tensor) const {
    return gpu().Fill(tensor.raw(), 0, tensor.size_bytes());
  }

  VolumeAttrs attrs_;
  GpuConvolver convolver_;
};

class GpuConv3D : public GpuConv3DKernel {
 public:
  using GpuConv3DKernel::GpuConv3DKernel;
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(attrs_, ReadVolumeAttrs(setup.node()));
    RETURN_IF_ERROR(CheckConv3DAttrs(attrs_));
    return Start(setup);
  }
  absl::Status Compute(KernelContext& c) override {
    const Tensor& input = c.input(0);
    const Tensor& filter = c.input(1);
    ASSIGN_OR_RETURN(const Shape shape, Conv3DOutputShape(attrs_, input.shape(), filter.shape()));
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, shape));
    if (shape.num_elements() == 0) return absl::OkStatus();
    if (input.num_elements() == 0) return SetZero(*output);
    ASSIGN_OR_RETURN(const GpuConvSizes sizes, SizesOf(input.shape(), filter.shape(), shape));
    return Done(convolver_.Forward(c, sizes, input, filter, *output));
  }
};

class GpuConv3DGradient : public GpuConv3DKernel {
 public:
  using GpuConv3DKernel::GpuConv3DKernel;
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(attrs_, ReadVolumeAttrs(setup.node()));
    RETURN_IF_ERROR(CheckConv3DLengths(attrs_));
    RETURN_IF_ERROR(CheckConv3DSteps(attrs_, attrs_.dilations, "dilation rates"));
    RETURN_IF_ERROR(CheckConv3DSteps(attrs_, attrs_.strides, "strides"));
    label_ = Conv3DGradientLabel(setup.node());
    return Start(setup);
  }

 protected:
  absl::Status Check(const Shape& input, const Shape& filter, const Shape& dy) const {
    return CheckConv3DGradient(attrs_, label_, input, filter, dy, /*in_groups=*/true);
  }

 private:
  std::string label_;
};

class GpuConv3DBackpropInput : public GpuConv3DGradient {
 public:
  using GpuConv3DGradient::GpuConv3DGradient;
  absl::Status Compute(KernelContext& c) override {
    const Tensor& filter = c.input(1);
    const Tensor& dy = c.input(2);
    ASSIGN_OR_RETURN(const Shape shape, Conv3DInputShape(c.input(0)));
    RETURN_IF_ERROR(Check(shape, filter.shape(), dy.shape()));
    ASSIGN_OR_RETURN(Tensor* const dx, c.AllocateOutput(0, shape));
    if (dx->num_elements() == 0) return absl::OkStatus();
    if (filter.num_elements() == 0 || dy.num_elements() == 0) return SetZero(*dx);
    ASSIGN_OR_RETURN(const GpuConvSizes sizes, SizesOf(shape, filter.shape(), dy.shape()));
    return Done(convolver_.BackwardInput(c, sizes, filter, dy, *dx));
  }
};

class GpuConv3DBackpropFilter : public GpuConv3DGradient {
 public:
  using GpuConv3DGradient::GpuConv3DGradient;
  absl::Status Compute(KernelContext& c) override {
    const Tensor& input = c.input(0);
    const Tensor& dy = c.input(2);
    ASSIGN_OR_RETURN(const Shape shape, Conv3DFilterShape(c.input(1)));
    RETURN_IF_ERROR(Check(input.shape(), shape, dy.shape()));
    ASSIGN_OR_RETURN(Tensor* const dw, c.AllocateOutput(0, shape));
    if (dw->num_elements() == 0) return absl::OkStatus();
    if (input.num_elements() == 0 || dy.num_elements() == 0) return SetZero(*dw);
    ASSIGN_OR_RETURN(const GpuConvSizes sizes, SizesOf(input.shape(), shape, dy.shape()));
    return Done(convolver_.BackwardFilter(c, sizes, input, dy, *dw));
  }
};

}  // namespace

void AddGpuConv3D(OpBuilder& op) {
  AddGpuFloats<GpuConv3D>(op);
}
void AddGpuConv3DBackpropInput(OpBuilder& op) {
  AddGpuFloats<GpuConv3DBackpropInput>(op);
}
void AddGpuConv3DBackpropFilter(OpBuilder& op) {
  AddGpuFloats<GpuConv3DBackpropFilter>(op);
}

}  // namespace muster
