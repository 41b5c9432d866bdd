// Depthwise convolution, a grouped convolution with one channel per group, and its two gradients.
#include "muster/ops/conv/conv_types.h"
#include "muster/ops/conv/depthwise.h"
#include "muster/ops/nn/gradient_support.h"

namespace muster {

absl::StatusOr<Shape> DepthwiseShape(const Tensor& sizes, absl::string_view op,
                                     absl::string_view what) {
  if (sizes.rank() != 1)
    return InvalidArgument(op, ": ", what, " input must be 1-dim, not ", sizes.rank());
  ASSIGN_OR_RETURN(const Dims dims, IntegerValues(sizes));
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] < 0) return InvalidArgument("Dimension ", i, " of ", what, " must be >= 0");
  }
  return Shape::Make(dims);
}

namespace {

class Depthwise : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(attrs_, ReadConvAttrs(setup.node()));
    return CheckConvAttrs(attrs_);
  }

 protected:
  absl::Status CheckLayout() const {
    if (attrs_.data_format == "NHWC") return absl::OkStatus();
    return Unimplemented("Depthwise convolution on CPU is only supported for NHWC format");
  }

  ConvAttrs attrs_;
  Convolver convolver_;
};

template <typename T>
class DepthwiseForward : public Depthwise {
 public:
  absl::Status Compute(KernelContext& c) override {
    const Tensor input = c.input(0);
    const Tensor filter = c.input(1);
    ASSIGN_OR_RETURN(const ConvGeometry g,
                     MakeDepthwiseGeometry(attrs_, input.shape(), filter.shape()));
    const Shape shape = OutputShape(attrs_, g);
    if (shape.num_elements() == 0) return c.AllocateOutput(0, shape).status();
    RETURN_IF_ERROR(CheckLayout());
    ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, shape));
    return ConvForward(c, convolver_, g, input.data<T>(), filter.data<T>(), output->data<T>());
  }
};

template <typename T>
class DepthwiseBackpropInput : public Depthwise {
 public:
  absl::Status Compute(KernelContext& c) override {
    const Tensor filter = c.input(1);
    const Tensor dy = c.input(2);
    ASSIGN_OR_RETURN(const Shape shape, DepthwiseInputShape(c.input(0)));
    ASSIGN_OR_RETURN(const ConvGeometry g,
                     MakeDepthwiseGeometry(attrs_, shape, filter.shape(), &dy.shape()));
    if (shape.num_elements() > 0) RETURN_IF_ERROR(CheckLayout());
    ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, shape));
    T* const out = output->data<T>();
    if (output->num_elements() == 0) return absl::OkStatus();
    return ConvBackwardInput(c, convolver_, g, filter.data<T>(), dy.data<T>(), out);
  }
};

template <typename T>
class DepthwiseBackpropFilter : public Depthwise {
 public:
  absl::Status Compute(KernelContext& c) override {
    const Tensor input = c.input(0);
    const Tensor dy = c.input(2);
    ASSIGN_OR_RETURN(const Shape shape, DepthwiseFilterShape(c.input(1)));
    ASSIGN_OR_RETURN(const ConvGeometry g,
                     MakeDepthwiseGeometry(attrs_, input.shape(), shape, &dy.shape()));
    if (shape.num_elements() > 0) RETURN_IF_ERROR(CheckLayout());
    ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, shape));
    T* const out = output->data<T>();
    if (input.num_elements() == 0 || dy.num_elements() == 0) {
      std::fill(out, out + output->num_elements(), static_cast<T>(0));
      return absl::OkStatus();
    }
    return ConvBackwardFilter(c, convolver_, g, input.data<T>(), dy.data<T>(), out);
  }
};

absl::Status InferForward(ShapeContext& c) {
  ASSIGN_OR_RETURN(ConvAttrs attrs, ReadConvAttrs(c.node(), /*dilations_of_any_size=*/true));
  // TensorFlow's rule does not look at them; the kernel will.
  for (int64_t& dilation : attrs.dilations) {
    if (dilation != static_cast<int32_t>(dilation)) dilation = 1;
  }
  ASSIGN_OR_RETURN(PartialShape shape, InferConv(c, attrs, true));
  c.SetOutput(0, std::move(shape));
  return absl::OkStatus();
}

template <int kSizes>
absl::Status InferBackward(ShapeContext& c) {
  ASSIGN_OR_RETURN(PartialShape shape, InferFromSizes(c, kSizes));
  c.SetOutput(0, std::move(shape));
  return absl::OkStatus();
}

constexpr char kForward[] = "DepthwiseConv2dNative";
constexpr char kBackpropInput[] = "DepthwiseConv2dNativeBackpropInput";
constexpr char kBackpropFilter[] = "DepthwiseConv2dNativeBackpropFilter";

AttrMap ConvAttrsOf(const GradientContext& c) {
  return CopyAttrs(c, {"dilations", "strides", "padding", "explicit_paddings", "data_format"});
}

absl::Status Differentiate(GradientContext& c) {
  const Output input_shape = c.ShapeOf(c.input(0));
  c.SetDx(0, c.Op(kBackpropInput, {input_shape, c.input(1), c.dy()}, ConvAttrsOf(c)));
  const Output filter_shape = c.ShapeOf(c.input(1));
  c.SetDx(1, c.Op(kBackpropFilter, {c.input(0), filter_shape, c.dy()}, ConvAttrsOf(c)));
  return absl::OkStatus();
}

absl::Status DifferentiateBackpropInput(GradientContext& c) {
  const Output shape = c.ShapeOf(c.input(1));
  c.SetDx(1, c.Op(kBackpropFilter, {c.dy(), shape, c.input(2)}, ConvAttrsOf(c)));
  c.SetDx(2, c.Op(kForward, {c.dy(), c.input(1)}, ConvAttrsOf(c)));
  return absl::OkStatus();
}

absl::Status DifferentiateBackpropFilter(GradientContext& c) {
  const Output shape = c.ShapeOf(c.input(0));
  c.SetDx(0, c.Op(kBackpropInput, {shape, c.dy(), c.input(2)}, ConvAttrsOf(c)));
  c.SetDx(2, c.Op(kForward, {c.input(0), c.dy()}, ConvAttrsOf(c)));
  return absl::OkStatus();
}

}  // namespace

DEFINE_OP(DepthwiseConv2dNative) {
  op.Attr("T: {half, bfloat16, float, double}")
      .Attr("strides: list(int)")
      .Attr("padding: {'SAME', 'VALID', 'EXPLICIT'}")
      .Attr2x("explicit_paddings: list(int) = []")
      .Attr("data_format: {'NHWC', 'NCHW'} = 'NHWC'")
      .Attr("dilations: list(int) = [1, 1, 1, 1]")
      .Input("input: T")
      .Input("filter: T")
      .Output("output: T")
      .Doc("Each channel with its own filters: [height, width, channels, multiplier].")
      .Shape(InferForward)
      .Gradient(Differentiate)
      .CpuTypes<Floats>("T", []<typename T>() { return New<DepthwiseForward<T>>(); });
  AddGpuDepthwise(op);
}

DEFINE_OP(DepthwiseConv2dNativeBackpropInput) {
  op.Attr("T: {half, bfloat16, float, double}")
      .Attr("strides: list(int)")
      .Attr("padding: {'SAME', 'VALID', 'EXPLICIT'}")
      .Attr2x("explicit_paddings: list(int) = []")
      .Attr("data_format: {'NHWC', 'NCHW'} = 'NHWC'")
      .Attr("dilations: list(int) = [1, 1, 1, 1]")
      .Input("input_sizes: int32")
      .Input("filter: T")
      .Input("out_backprop: T")
      .Output("output: T")
      .Doc("Gradient of DepthwiseConv2dNative for its images.")
      .Shape(InferBackward<0>)
      .Gradient(DifferentiateBackpropInput)
      .HostMemory({"input_sizes"})
      .CpuTypes<Floats>("T", []<typename T>() { return New<DepthwiseBackpropInput<T>>(); });
  AddGpuDepthwiseBackpropInput(op);
}

DEFINE_OP(DepthwiseConv2dNativeBackpropFilter) {
  op.Attr("T: {half, bfloat16, float, double}")
      .Attr("strides: list(int)")
      .Attr("padding: {'SAME', 'VALID', 'EXPLICIT'}")
      .Attr2x("explicit_paddings: list(int) = []")
      .Attr("data_format: {'NHWC', 'NCHW'} = 'NHWC'")
      .Attr("dilations: list(int) = [1, 1, 1, 1]")
      .Input("input: T")
      .Input("filter_sizes: int32")
      .Input("out_backprop: T")
      .Output("output: T")
      .Doc("Gradient of DepthwiseConv2dNative for its filter.")
      .Shape(InferBackward<1>)
      .Gradient(DifferentiateBackpropFilter)
      .HostMemory({"filter_sizes"})
      .CpuTypes<Floats>("T", []<typename T>() { return New<DepthwiseBackpropFilter<T>>(); });
  AddGpuDepthwiseBackpropFilter(op);
}

}  // namespace muster
