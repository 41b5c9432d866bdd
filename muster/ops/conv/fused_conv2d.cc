// _FusedConv2D: a convolution with what graph rewriting found behind it.
#include "muster/ops/conv/fused_conv2d.h"

#include <cmath>

#include "absl/strings/str_join.h"

#include "muster/ops/conv/conv_gpu.h"
#include "muster/ops/conv/conv_types.h"

namespace muster {

absl::StatusOr<FusedConv> ReadFusedConv(const KernelSetup& setup, DType dtype) {
  FusedConv fused;
  ASSIGN_OR_RETURN(fused.epsilon, setup.Attr<float>("epsilon"));
  ASSIGN_OR_RETURN(fused.alpha, setup.Attr<float>("leakyrelu_alpha"));
  ASSIGN_OR_RETURN(const auto args, setup.Attr<std::vector<DType>>("TArgs"));
  for (DType arg : args) {
    if (arg != dtype)
      return Unimplemented("Fused Conv2D with an argument of type ", DTypeName(arg));
  }
  ASSIGN_OR_RETURN(const auto ops, setup.Attr<std::vector<std::string>>("fused_ops"));
  size_t next = 0;
  if (ops.empty()) return InvalidArgument("Fused Conv2D must have at least one fused op.");
  if (ops[0] == "BiasAdd") {
    next = 1;
    if (next < ops.size() && ops[next] == "Add") {
      fused.adds = true;
      ++next;
    }
  } else if (ops[0] == "FusedBatchNorm") {
    fused.batch_norm = true;
    next = 1;
  }
  if (next > 0 && next < ops.size()) {
    ASSIGN_OR_RETURN(fused.activation, ActivationFrom(ops[next]));
    ++next;
  }
  if (next != ops.size())
    return Unimplemented("Fusion is not implemented: [", absl::StrJoin(ops, ","), "]");
  const size_t wanted = fused.batch_norm ? 4 : fused.adds ? 2 : 1;
  if (args.size() != wanted) {
    return InvalidArgument("Fused Conv2D [", absl::StrJoin(ops, ","), "] must have ", wanted,
                           " extra arguments, but got ", args.size());
  }
  return fused;
}

absl::Status CheckFusedArguments(const KernelContext& c, const FusedConv& fused, int64_t channels,
                                 const Shape& output) {
  for (int i = 2; i < (fused.batch_norm ? 6 : 3); ++i) {
    if (c.input(i).rank() == 1 && c.input(i).dim(0) == channels) continue;
    return InvalidArgument("Fused Conv2D needs ", fused.batch_norm ? "statistics" : "a bias",
                           " of shape [", channels, "], but input ", i, " has shape ",
                           c.input(i).shape().ToString());
  }
  if (fused.adds && c.input(3).shape() != output) {
    return InvalidArgument("Fused Conv2D adds a tensor of shape ", output.ToString(), ", but got ",
                           c.input(3).shape().ToString());
  }
  return absl::OkStatus();
}

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
    ASSIGN_OR_RETURN(fused_, ReadFusedConv(setup, kDTypeOf<T>));
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    using V = muster::Compute<T>;
    const Tensor input = c.input(0);
    const Tensor filter = c.input(1);
    ASSIGN_OR_RETURN(const ConvGeometry g, MakeConvGeometry(attrs_, input.shape(), filter.shape()));
    const int64_t n = g.out_channels;
    RETURN_IF_ERROR(CheckFusedArguments(c, fused_, n, g.output_shape()));
    ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, g.output_shape()));
    if (output->num_elements() == 0) return absl::OkStatus();
    T* const out = output->data<T>();
    RETURN_IF_ERROR(ConvForward(c, convolver_, g, input.data<T>(), filter.data<T>(), out));
    // y = conv * factor + bias
    std::vector<V> factor(static_cast<size_t>(n), V(1));
    std::vector<V> bias(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) {
      bias[i] = static_cast<V>(c.input(2).data<T>()[i]);
      if (!fused_.batch_norm) continue;
      factor[i] = bias[i] / std::sqrt(static_cast<V>(c.input(5).data<T>()[i]) +
                                      static_cast<V>(fused_.epsilon));
      bias[i] = static_cast<V>(c.input(3).data<T>()[i]) -
                static_cast<V>(c.input(4).data<T>()[i]) * factor[i];
    }
    const T* const added = fused_.adds ? c.input(3).data<T>() : nullptr;
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
                      Activate(fused_.activation, static_cast<V>(fused_.alpha), row.data(), n);
                      for (int64_t i = 0; i < n; ++i) to[i] = static_cast<T>(row[i]);
                    }
                  });
    return absl::OkStatus();
  }

 private:
  ConvAttrs attrs_;
  Convolver convolver_;
  FusedConv fused_;
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
  AddGpuFusedConv2D(op);
}

}  // namespace muster
