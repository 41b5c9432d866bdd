// _FusedConv2D: a convolution with what graph rewriting found behind it.
#include <cmath>

#include "absl/strings/str_join.h"

#include "muster/ops/conv/conv_types.h"
#include "muster/ops/nn/fused_activation.h"

namespace muster {
namespace {

template <typename T>
class FusedConv2D : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(attrs_, ReadConvAttrs(setup.node()));
    if (attrs_.data_format != "NHWC") {
      return Unimplemented(
          "Fused Conv2D on the CPU supports the NHWC tensor format only, but was given ",
          attrs_.data_format);
    }
    ASSIGN_OR_RETURN(const std::string filter_format, setup.Attr<std::string>("filter_format"));
    if (filter_format != "HWIO") {
      return Unimplemented("Fused Conv2D on the CPU supports HWIO filters only, but was given ",
                           filter_format);
    }
    RETURN_IF_ERROR(CheckConvAttrs(attrs_));
    ASSIGN_OR_RETURN(epsilon_, setup.Attr<float>("epsilon"));
    ASSIGN_OR_RETURN(alpha_, setup.Attr<float>("leakyrelu_alpha"));
    ASSIGN_OR_RETURN(const auto args, setup.Attr<std::vector<DType>>("TArgs"));
    for (DType dtype : args) {
      if (dtype != kDTypeOf<T>)
        return Unimplemented("Fused Conv2D with an argument of type ", DTypeName(dtype));
    }
    ASSIGN_OR_RETURN(const auto fused, setup.Attr<std::vector<std::string>>("fused_ops"));
    size_t next = 0;
    if (fused.empty()) return InvalidArgument("Fused Conv2D must have at least one fused op.");
    if (fused[0] == "BiasAdd") {
      next = 1;
      if (next < fused.size() && fused[next] == "Add") {
        adds_ = true;
        ++next;
      }
    } else if (fused[0] == "FusedBatchNorm") {
      batch_norm_ = true;
      next = 1;
    }
    if (next > 0 && next < fused.size()) {
      ASSIGN_OR_RETURN(activation_, ActivationFrom(fused[next]));
      ++next;
    }
    if (next != fused.size())
      return Unimplemented("Fusion is not implemented: [", absl::StrJoin(fused, ","), "]");
    const size_t wanted = batch_norm_ ? 4 : adds_ ? 2 : 1;
    if (args.size() != wanted) {
      return InvalidArgument("Fused Conv2D [", absl::StrJoin(fused, ","), "] must have ", wanted,
                             " extra arguments, but got ", args.size());
    }
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    using V = muster::Compute<T>;
    const Tensor input = c.input(0);
    const Tensor filter = c.input(1);
    ASSIGN_OR_RETURN(const ConvGeometry g, MakeConvGeometry(attrs_, input.shape(), filter.shape()));
    const int64_t n = g.out_channels;
    for (int i = 2; i < (batch_norm_ ? 6 : 3); ++i) {
      if (c.input(i).rank() != 1 || c.input(i).dim(0) != n) {
        return InvalidArgument("Fused Conv2D needs ", batch_norm_ ? "statistics" : "a bias",
                               " of shape [", n, "], but input ", i, " has shape ",
                               c.input(i).shape().ToString());
      }
    }
    if (adds_ && c.input(3).shape() != g.output_shape()) {
      return InvalidArgument("Fused Conv2D adds a tensor of shape ", g.output_shape().ToString(),
                             ", but got ", c.input(3).shape().ToString());
    }
    ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, g.output_shape()));
    if (output->num_elements() == 0) return absl::OkStatus();
    T* const out = output->data<T>();
    RETURN_IF_ERROR(ConvForward(c, convolver_, g, input.data<T>(), filter.data<T>(), out));
    // y = conv * factor + bias
    std::vector<V> factor(static_cast<size_t>(n), V(1));
    std::vector<V> bias(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) {
      bias[i] = static_cast<V>(c.input(2).data<T>()[i]);
      if (!batch_norm_) continue;
      factor[i] =
          bias[i] / std::sqrt(static_cast<V>(c.input(5).data<T>()[i]) + static_cast<V>(epsilon_));
      bias[i] = static_cast<V>(c.input(3).data<T>()[i]) -
                static_cast<V>(c.input(4).data<T>()[i]) * factor[i];
    }
    const T* const added = adds_ ? c.input(3).data<T>() : nullptr;
    c.ParallelFor(output->num_elements() / n, 2.0 * static_cast<double>(n),
                  [&](int64_t begin, int64_t end) {
                    std::vector<V> row(static_cast<size_t>(n));
                    for (int64_t cell = begin; cell < end; ++cell) {
                      T* const to = out + cell * n;
                      for (int64_t i = 0; i < n; ++i)
                        row[i] = static_cast<V>(to[i]) * factor[i] + bias[i];
                      if (added != nullptr) {
                        for (int64_t i = 0; i < n; ++i)
                          row[i] += static_cast<V>(added[cell * n + i]);
                      }
                      Activate(activation_, static_cast<V>(alpha_), row.data(), n);
                      for (int64_t i = 0; i < n; ++i) to[i] = static_cast<T>(row[i]);
                    }
                  });
    return absl::OkStatus();
  }

 private:
  ConvAttrs attrs_;
  Convolver convolver_;
  float epsilon_ = 0;
  float alpha_ = 0;
  bool batch_norm_ = false;
  bool adds_ = false;
  Activation activation_ = Activation::kNone;
};

}  // namespace

DEFINE_OP(_FusedConv2D) {
  op.Attr("T: {half, float, double, int8, qint8}")
      .Attr("TArgs: list(type) >= 1")
      .Attr("num_args: int >= 0")
      .Attr("num_host_args: int >= 0 = 0")
      .Attr("strides: list(int)")
      .Attr("padding: {'SAME', 'VALID', 'EXPLICIT'}")
      .Attr("explicit_paddings: list(int) = []")
      .Attr("data_format: {'NHWC', 'NCHW', 'NCHW_VECT_C'} = 'NHWC'")
      .Attr("filter_format: {'HWIO', 'OIHW', 'OIHW_VECT_I'} = 'HWIO'")
      .Attr("dilations: list(int) = [1, 1, 1, 1]")
      .Attr("use_cudnn_on_gpu: bool = true")
      .Attr("fused_ops: list(string) = []")
      .Attr("epsilon: float = 9.999999747378752e-05")
      .Attr("leakyrelu_alpha: float = 0.20000000298023224")
      .Input("input: T")
      .Input("filter: T")
      .Input("args: TArgs")
      .Input("host_args: num_host_args * float")
      .Output("output: T")
      .Doc(
          "Conv2D with a bias or batch normalisation, a sum and an activation behind it; made by "
          "graph rewriting.")
      .Shape(InferConv2D)
      .CpuTypes<Types<Half, float, double>>("T",
                                            []<typename T>() { return New<FusedConv2D<T>>(); });
}

}  // namespace muster
