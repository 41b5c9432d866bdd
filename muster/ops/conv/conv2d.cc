// Conv2D and its two gradients.
#include "absl/strings/str_replace.h"

#include "muster/ops/conv/conv_gpu.h"
#include "muster/ops/conv/conv_types.h"
#include "muster/ops/nn/gradient_support.h"

namespace muster {
namespace {

class ConvGradient : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(const std::string data_format, setup.Attr<std::string>("data_format"));
    if (data_format != "NHWC") {
      return InvalidArgument(
          absl::StrReplaceAll(setup.node().op(), {{"Conv2DBackprop", "Conv2DCustomBackprop"}}),
          "Op only supports NHWC.");
    }
    ASSIGN_OR_RETURN(attrs_, ReadConvAttrs(setup.node()));
    return CheckConvAttrs(attrs_);
  }

 protected:
  ConvAttrs attrs_;
  Convolver convolver_;
};

template <typename T>
class Conv2D : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(attrs_, ReadConvAttrs(setup.node()));
    return CheckConvAttrs(attrs_);
  }
  absl::Status Compute(KernelContext& c) override {
    const Tensor input = c.input(0);
    const Tensor filter = c.input(1);
    ASSIGN_OR_RETURN(const ConvGeometry g, MakeConvGeometry(attrs_, input.shape(), filter.shape()));
    const Shape shape = OutputShape(attrs_, g);
    if (shape.num_elements() == 0) return c.AllocateOutput(0, shape).status();
    if (attrs_.data_format != "NHWC") {
      return Unimplemented(
          "The Conv2D op currently only supports the NHWC tensor format on the CPU. The op was "
          "given the format: ",
          attrs_.data_format);
    }
    ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, shape));
    return ConvForward(c, convolver_, g, input.data<T>(), filter.data<T>(), output->data<T>());
  }

 private:
  ConvAttrs attrs_;
  Convolver convolver_;
};

template <typename T>
class Conv2DBackpropInput : public ConvGradient {
 public:
  absl::Status Compute(KernelContext& c) override {
    const Tensor filter = c.input(1);
    const Tensor dy = c.input(2);
    RETURN_IF_ERROR(CheckConvOutBackprop(dy.shape()));
    ASSIGN_OR_RETURN(const Shape shape,
                     ConvInputShape(attrs_, c.input(0), filter.shape(), dy.shape()));
    ASSIGN_OR_RETURN(const ConvGeometry g,
                     MakeConvGeometry(attrs_, shape, filter.shape(), &dy.shape()));
    ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, shape));
    T* const out = output->data<T>();
    if (output->num_elements() == 0) return absl::OkStatus();
    return ConvBackwardInput(c, convolver_, g, filter.data<T>(), dy.data<T>(), out);
  }
};

template <typename T>
class Conv2DBackpropFilter : public ConvGradient {
 public:
  absl::Status Compute(KernelContext& c) override {
    const Tensor input = c.input(0);
    const Tensor& sizes = c.input(1);
    const Tensor dy = c.input(2);
    ASSIGN_OR_RETURN(const Shape shape, ConvFilterShape(sizes));
    ASSIGN_OR_RETURN(const ConvGeometry g,
                     MakeConvGeometry(attrs_, input.shape(), shape, &dy.shape()));
    ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, shape));
    if (output->num_elements() == 0) return absl::OkStatus();
    T* const out = output->data<T>();
    if (input.num_elements() == 0 || dy.num_elements() == 0) {
      std::fill(out, out + output->num_elements(), static_cast<T>(0));
      return absl::OkStatus();
    }
    return ConvBackwardFilter(c, convolver_, g, input.data<T>(), dy.data<T>(), out);
  }
};

absl::Status InferBackpropInput(ShapeContext& c) {
  ASSIGN_OR_RETURN(const std::string data_format, c.Attr<std::string>("data_format"));
  ASSIGN_OR_RETURN(const ImageAxes axes, AxesOf(data_format));
  ASSIGN_OR_RETURN(const PartialShape dy, c.WithRank(c.input(2), 4));
  ASSIGN_OR_RETURN(const PartialShape filter, c.WithRank(c.input(1), 4));
  ASSIGN_OR_RETURN(const int64_t depth,
                   ShapeContext::MergeDims(dy.dim(axes.channels), filter.dim(3)));
  static_cast<void>(depth);
  ASSIGN_OR_RETURN(PartialShape sizes, c.InputAsShape(0));
  if (!sizes.known_rank()) sizes = PartialShape::OfRank(4);
  if (sizes.rank() == 2) {
    PartialShape full = PartialShape::OfRank(4);
    full.Set(0, dy.dim(0));
    full.Set(axes.height, sizes.dim(0));
    full.Set(axes.width, sizes.dim(1));
    full.Set(axes.channels, filter.dim(2));
    sizes = std::move(full);
  } else if (sizes.rank() == 4) {
    ASSIGN_OR_RETURN(const int64_t batch, ShapeContext::MergeDims(sizes.dim(0), dy.dim(0)));
    sizes.Set(0, batch);
  } else {
    return InvalidArgument(
        "Conv2DBackpropInput requires input_sizes to contain 4 values or 2 values, but got: ",
        sizes.rank());
  }
  c.SetOutput(0, std::move(sizes));
  return absl::OkStatus();
}

absl::Status InferBackpropFilter(ShapeContext& c) {
  ASSIGN_OR_RETURN(PartialShape shape, InferFromSizes(c, 1));
  c.SetOutput(0, std::move(shape));
  return absl::OkStatus();
}

AttrMap ConvAttrsOf(const GradientContext& c) {
  return CopyAttrs(c, {"dilations", "strides", "padding", "explicit_paddings", "use_cudnn_on_gpu",
                       "data_format"});
}

absl::Status Differentiate(GradientContext& c) {
  const Output x = c.input(0);
  const Output w = c.input(1);
  Node* const shapes = c.scope().Add("ShapeN", {NodeInput(std::vector<Output>{x, w})},
                                     {{"out_type", DType::kInt32}});
  if (shapes == nullptr) return c.scope().status();
  c.SetDx(0, c.Op("Conv2DBackpropInput", {Output(shapes, 0), w, c.dy()}, ConvAttrsOf(c)));
  c.SetDx(1, c.Op("Conv2DBackpropFilter", {x, Output(shapes, 1), c.dy()}, ConvAttrsOf(c)));
  return absl::OkStatus();
}

absl::Status DifferentiateBackpropInput(GradientContext& c) {
  const Output shape = c.ShapeOf(c.input(1));
  c.SetDx(1, c.Op("Conv2DBackpropFilter", {c.dy(), shape, c.input(2)}, ConvAttrsOf(c)));
  c.SetDx(2, c.Op("Conv2D", {c.dy(), c.input(1)}, ConvAttrsOf(c)));
  return absl::OkStatus();
}

absl::Status DifferentiateBackpropFilter(GradientContext& c) {
  const Output shape = c.ShapeOf(c.input(0));
  c.SetDx(0, c.Op("Conv2DBackpropInput", {shape, c.dy(), c.input(2)}, ConvAttrsOf(c)));
  c.SetDx(2, c.Op("Conv2D", {c.input(0), c.dy()}, ConvAttrsOf(c)));
  return absl::OkStatus();
}

using ForwardTypes = Types<Half, Bfloat16, float, double, int32_t>;

}  // namespace

DEFINE_OP(Conv2D) {
  op.Attr("T: {half, bfloat16, float, double, int32}")
      .Attr("strides: list(int)")
      .Attr("use_cudnn_on_gpu: bool = true")
      .Attr("padding: {'SAME', 'VALID', 'EXPLICIT'}")
      .Attr("explicit_paddings: list(int) = []")
      .Attr("data_format: {'NHWC', 'NCHW'} = 'NHWC'")
      .Attr("dilations: list(int) = [1, 1, 1, 1]")
      .Input("input: T")
      .Input("filter: T")
      .Output("output: T")
      .Doc("Cross-correlation of images with a filter [height, width, channels, outputs].")
      .Shape(InferConv2D)
      .Gradient(Differentiate)
      .CpuTypes<ForwardTypes>("T", []<typename T>() { return New<Conv2D<T>>(); });
  AddGpuConv2D(op);
}

DEFINE_OP(Conv2DBackpropInput) {
  op.Attr("T: {half, bfloat16, float, double, int32}")
      .Attr("strides: list(int)")
      .Attr("use_cudnn_on_gpu: bool = true")
      .Attr("padding: {'SAME', 'VALID', 'EXPLICIT'}")
      .Attr("explicit_paddings: list(int) = []")
      .Attr("data_format: {'NHWC', 'NCHW'} = 'NHWC'")
      .Attr("dilations: list(int) = [1, 1, 1, 1]")
      .Input("input_sizes: int32")
      .Input("filter: T")
      .Input("out_backprop: T")
      .Output("output: T")
      .Doc("Gradient of Conv2D for its images.")
      .Shape(InferBackpropInput)
      .Gradient(DifferentiateBackpropInput)
      .HostMemory({"input_sizes"})
      .CpuTypes<ForwardTypes>("T", []<typename T>() { return New<Conv2DBackpropInput<T>>(); });
  AddGpuConv2DBackpropInput(op);
}

DEFINE_OP(Conv2DBackpropFilter) {
  op.Attr("T: {half, bfloat16, float, double}")
      .Attr("strides: list(int)")
      .Attr("use_cudnn_on_gpu: bool = true")
      .Attr("padding: {'SAME', 'VALID', 'EXPLICIT'}")
      .Attr("explicit_paddings: list(int) = []")
      .Attr("data_format: {'NHWC', 'NCHW'} = 'NHWC'")
      .Attr("dilations: list(int) = [1, 1, 1, 1]")
      .Input("input: T")
      .Input("filter_sizes: int32")
      .Input("out_backprop: T")
      .Output("output: T")
      .Doc("Gradient of Conv2D for its filter.")
      .Shape(InferBackpropFilter)
      .Gradient(DifferentiateBackpropFilter)
      .HostMemory({"filter_sizes"})
      .CpuTypes<Floats>("T", []<typename T>() { return New<Conv2DBackpropFilter<T>>(); });
  AddGpuConv2DBackpropFilter(op);
}

}  // namespace muster
