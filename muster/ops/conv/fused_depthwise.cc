// _FusedDepthwiseConv2dNative: a depthwise convolution with the bias and the activation that
// TensorFlow 2's graph optimizer found behind it.
#include "absl/strings/str_join.h"

#include "muster/ops/conv/conv_types.h"
#include "muster/ops/nn/fused_activation.h"

namespace muster {
namespace {

template <typename T>
class FusedDepthwise : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(attrs_, ReadConvAttrs(setup.node()));
    if (attrs_.data_format != "NHWC") {
      return Unimplemented("Depthwise convolution on CPU is only supported for NHWC format");
    }
    RETURN_IF_ERROR(CheckConvAttrs(attrs_));
    ASSIGN_OR_RETURN(alpha_, setup.Attr<float>("leakyrelu_alpha"));
    ASSIGN_OR_RETURN(const int64_t args, setup.Attr<int64_t>("num_args"));
    ASSIGN_OR_RETURN(const auto fused, setup.Attr<std::vector<std::string>>("fused_ops"));
    if (fused.empty() || fused[0] != "BiasAdd" || fused.size() > 2) {
      return Unimplemented("Fusion is not implemented: [", absl::StrJoin(fused, ","), "]");
    }
    if (args != 1) {
      return InvalidArgument(
          "Fused depthwise Conv2D with BiasAdd must have one extra argument, the bias, but got ",
          args);
    }
    if (fused.size() == 2) {
      ASSIGN_OR_RETURN(activation_, ActivationFrom(fused[1]));
    }
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    using V = muster::Compute<T>;
    const Tensor input = c.input(0);
    const Tensor filter = c.input(1);
    const Tensor bias = c.input(2);
    ASSIGN_OR_RETURN(const ConvGeometry g,
                     MakeDepthwiseGeometry(attrs_, input.shape(), filter.shape()));
    const int64_t n = g.output_shape().dim(3);
    if (bias.rank() != 1 || bias.dim(0) != n) {
      return InvalidArgument("Fused depthwise Conv2D needs a bias of shape [", n, "], but got ",
                             bias.shape().ToString());
    }
    ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, g.output_shape()));
    if (output->num_elements() == 0) return absl::OkStatus();
    T* const out = output->data<T>();
    RETURN_IF_ERROR(ConvForward(c, convolver_, g, input.data<T>(), filter.data<T>(), out));
    const T* const added = bias.data<T>();
    c.ParallelFor(output->num_elements() / n, 2.0 * static_cast<double>(n),
                  [&](int64_t begin, int64_t end) {
                    std::vector<V> row(static_cast<size_t>(n));
                    for (int64_t cell = begin; cell < end; ++cell) {
                      T* const to = out + cell * n;
                      for (int64_t i = 0; i < n; ++i)
                        row[i] = static_cast<V>(to[i]) + static_cast<V>(added[i]);
                      Activate(activation_, static_cast<V>(alpha_), row.data(), n);
                      for (int64_t i = 0; i < n; ++i) to[i] = static_cast<T>(row[i]);
                    }
                  });
    return absl::OkStatus();
  }

 private:
  ConvAttrs attrs_;
  Convolver convolver_;
  float alpha_ = 0;
  Activation activation_ = Activation::kNone;
};

absl::Status InferFusedDepthwise(ShapeContext& c) {
  ASSIGN_OR_RETURN(const ConvAttrs attrs, ReadConvAttrs(c.node()));
  ASSIGN_OR_RETURN(PartialShape shape, InferConv(c, attrs, true));
  c.SetOutput(0, std::move(shape));
  return absl::OkStatus();
}

}  // namespace

DEFINE_OP(_FusedDepthwiseConv2dNative) {
  op.Attr("T: {half, bfloat16, float, double}")
      .Attr("num_args: int >= 0")
      .Attr("strides: list(int)")
      .Attr("padding: {'SAME', 'VALID'}")
      .Attr("data_format: {'NHWC', 'NCHW'} = 'NHWC'")
      .Attr("dilations: list(int) = [1, 1, 1, 1]")
      .Attr("fused_ops: list(string) = []")
      .Attr("epsilon: float = 9.999999747378752e-05")
      .Attr("leakyrelu_alpha: float = 0.20000000298023224")
      .Input("input: T")
      .Input("filter: T")
      .Input("args: num_args * T")
      .Output("output: T")
      .Doc(
          "DepthwiseConv2dNative with a bias and an activation behind it; made by graph rewriting.")
      .Shape(InferFusedDepthwise)
      .CpuTypes<Floats>("T", []<typename T>() { return New<FusedDepthwise<T>>(); });
}

}  // namespace muster
