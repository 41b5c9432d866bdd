// FusedBatchNorm in its three versions, and the form with an activation that graph rewriting makes.
#include "muster/ops/nn/batch_norm.h"

#include <cmath>

#include "absl/strings/match.h"

#include "muster/ops/nn/gradient_support.h"
#include "muster/ops/nn/packs.h"

namespace muster {

absl::StatusOr<BatchNormAttrs> ReadBatchNormAttrs(const Node& node) {
  BatchNormAttrs attrs;
  ASSIGN_OR_RETURN(attrs.epsilon, node.Attr<float>("epsilon"));
  ASSIGN_OR_RETURN(attrs.is_training, node.Attr<bool>("is_training"));
  ASSIGN_OR_RETURN(attrs.data_format, node.Attr<std::string>("data_format"));
  if (node.def().FindAttr("exponential_avg_factor") != nullptr) {
    ASSIGN_OR_RETURN(attrs.averaging, node.Attr<float>("exponential_avg_factor"));
  }
  return attrs;
}

absl::Status CheckVector(const Tensor& tensor, absl::string_view what) {
  if (tensor.rank() == 1) return absl::OkStatus();
  return InvalidArgument(what, " must be 1-dimensional", tensor.shape().ToString());
}

absl::Status CheckPerChannel(const Tensor& tensor, const ChannelView& view,
                             absl::string_view what) {
  if (tensor.num_elements() == view.channels) return absl::OkStatus();
  return InvalidArgument(what, " must have the same number of elements as the channels of x, got ",
                         tensor.num_elements(), " and ", view.channels);
}

absl::StatusOr<ChannelView> ViewChannels(const Shape& shape, absl::string_view data_format) {
  const int rank = shape.rank();
  if (rank != 4 && rank != 5)
    return InvalidArgument("input must be 4 or 5-dimensional", shape.ToString());
  ChannelView view;
  if (data_format[1] == 'C') {
    view.outer = shape.dim(0);
    view.channels = shape.dim(1);
    view.inner = shape.ElementsIn(2, rank);
  } else {
    view.outer = shape.ElementsIn(0, rank - 1);
    view.channels = shape.dim(rank - 1);
  }
  return view;
}

namespace {

// As TensorFlow words it for the statistics.
absl::Status CheckStatistics(const Tensor& tensor, const ChannelView& view, absl::string_view when,
                             absl::string_view what) {
  if (tensor.num_elements() == view.channels) return absl::OkStatus();
  return InvalidArgument("When ", when, ", ", what,
                         " must have the same number of elements as the channels of x, got ",
                         tensor.num_elements(), " and ", view.channels);
}

template <typename T>
class FusedBatchNorm : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(attrs_, ReadBatchNormAttrs(setup.node()));
    ASSIGN_OR_RETURN(fusion_, ReadBatchNormFusion(setup.node()));
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    const Tensor x = c.input(0);
    const Tensor scale = c.input(1);
    const Tensor offset = c.input(2);
    const Tensor mean = c.input(3);
    const Tensor variance = c.input(4);
    ASSIGN_OR_RETURN(const ChannelView view, CheckedBatchNorm(c, attrs_, fusion_));
    ASSIGN_OR_RETURN(Tensor * y, c.AllocateOutput(0, x.shape()));
    Tensor* vectors[4];
    for (int i = 0; i < 4; ++i) {
      ASSIGN_OR_RETURN(vectors[i], c.AllocateOutput(i + 1, Shape({view.channels})));
    }
    if (c.num_outputs() == 6) {
      RETURN_IF_ERROR(c.AllocateOutput(5, Shape({0})).status());
    }
    float* const out_mean = vectors[0]->data<float>();
    float* const out_variance = vectors[1]->data<float>();
    float* const used_mean = vectors[2]->data<float>();
    float* const used_variance = vectors[3]->data<float>();
    const int64_t n = view.channels;
    if (x.num_elements() == 0) {
      for (int i = 0; i < 4; ++i) {
        float* const to = vectors[i]->data<float>();
        std::fill(to, to + n, i < 2 ? std::numeric_limits<float>::quiet_NaN() : 0.0f);
      }
      return absl::OkStatus();
    }
    if (attrs_.is_training) {
      Measure(c, view, x.data<T>(), used_mean, used_variance);
      const double count = static_cast<double>(view.per_channel());
      const float correction = static_cast<float>(count / std::max(count - 1, 1.0));
      const float* const old_mean = mean.data<float>();
      const float* const old_variance = variance.data<float>();
      const float share = attrs_.averaging;
      for (int64_t i = 0; i < n; ++i) {
        out_mean[i] = used_mean[i];
        out_variance[i] = used_variance[i] * correction;
        if (share == 1.0f) continue;
        out_mean[i] = (1 - share) * old_mean[i] + share * out_mean[i];
        out_variance[i] = (1 - share) * old_variance[i] + share * out_variance[i];
      }
    } else {
      std::copy_n(mean.data<float>(), n, out_mean);
      std::copy_n(mean.data<float>(), n, used_mean);
      std::copy_n(variance.data<float>(), n, out_variance);
      std::copy_n(variance.data<float>(), n, used_variance);
    }
    Normalise(c, view, x, scale, offset, used_mean, used_variance, y->data<T>());
    return absl::OkStatus();
  }

 private:
  // Mean and biased variance, in two passes.
  static void Measure(KernelContext& c, const ChannelView& view, const T* x, float* mean,
                      float* variance) {
    const double count = static_cast<double>(view.per_channel());
    const std::vector<double> sums =
        SumPerChannel(c, view, [x](int64_t i, int64_t) { return static_cast<float>(x[i]); });
    for (int64_t i = 0; i < view.channels; ++i) mean[i] = static_cast<float>(sums[i] / count);
    const std::vector<double> squares =
        SumPerChannel(c, view, [x, mean](int64_t i, int64_t channel) {
          const float d = static_cast<float>(x[i]) - mean[channel];
          return d * d;
        });
    for (int64_t i = 0; i < view.channels; ++i)
      variance[i] = static_cast<float>(squares[i] / count);
  }

  void Normalise(KernelContext& c, const ChannelView& view, const Tensor& input,
                 const Tensor& scale, const Tensor& offset, const float* mean,
                 const float* variance, T* y) const {
    std::vector<float> factors(static_cast<size_t>(view.channels));
    for (int64_t i = 0; i < view.channels; ++i) {
      factors[i] = scale.data<float>()[i] / std::sqrt(variance[i] + attrs_.epsilon);
    }
    const T* const x = input.data<T>();
    const float* const f = factors.data();
    const float* const b = offset.data<float>();
    const T* const side = fusion_.has_side_input ? c.input(5).data<T>() : nullptr;
    if (side == nullptr && !fusion_.relu) {
      ForEachElement(c, view, [=](int64_t i, int64_t channel) {
        y[i] = static_cast<T>((static_cast<float>(x[i]) - mean[channel]) * f[channel] + b[channel]);
      });
      return;
    }
    const bool relu = fusion_.relu;
    ForEachElement(c, view, [=](int64_t i, int64_t channel) {
      float value = (static_cast<float>(x[i]) - mean[channel]) * f[channel] + b[channel];
      if (side != nullptr) value += static_cast<float>(side[i]);
      y[i] = static_cast<T>(relu && value < 0 ? 0.0f : value);
    });
  }

  BatchNormAttrs attrs_;
  BatchNormFusion fusion_;
};

absl::Status InferShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(const BatchNormAttrs attrs, ReadBatchNormAttrs(c.node()));
  const int rank = static_cast<int>(attrs.data_format.size());
  ASSIGN_OR_RETURN(PartialShape x, c.WithRank(c.input(0), rank));
  const int axis = attrs.data_format[1] == 'C' ? 1 : rank - 1;
  int64_t channels = x.dim(axis);
  const bool has_statistics = !attrs.is_training || attrs.averaging != 1.0f;
  for (int i = 1; i < (has_statistics ? 5 : 3); ++i) {
    ASSIGN_OR_RETURN(const PartialShape vector, c.WithRank(c.input(i), 1));
    ASSIGN_OR_RETURN(channels, ShapeContext::MergeDims(channels, vector.dim(0)));
  }
  x.Set(axis, channels);
  c.SetOutput(0, std::move(x));
  for (int i = 1; i < 5; ++i) c.SetOutput(i, PartialShape::Vector(channels));
  if (c.num_outputs() == 6) c.SetOutput(5, PartialShape());
  return absl::OkStatus();
}

Output Transpose(GradientContext& c, Output x, std::initializer_list<int32_t> order) {
  return OpWithConstant(c, "Transpose", x, Tensor::Vector<int32_t>(order), "perm", {}, "transpose");
}

// `op` is the gradient op of this version.
GradientFunction ByOp(const char* op) {
  return [op](GradientContext& c) {
    const bool training = c.Attr<bool>("is_training");
    const std::string format = c.Attr<std::string>("data_format");
    Output x = c.input(0);
    Output dy = c.dy();
    AttrMap attrs = CopyAttrs(c, {"epsilon", "data_format", "is_training"});
    // A frozen normalisation is differentiated with the channels last.
    const bool turned = !training && absl::StartsWith(format, "NC");
    const bool volume = format.size() == 5;
    if (turned) {
      x = volume ? Transpose(c, x, {0, 2, 3, 4, 1}) : Transpose(c, x, {0, 2, 3, 1});
      dy = volume ? Transpose(c, dy, {0, 2, 3, 4, 1}) : Transpose(c, dy, {0, 2, 3, 1});
      attrs.insert_or_assign("data_format", volume ? "NDHWC" : "NHWC");
    }
    std::vector<NodeInput> inputs = {dy, x, c.input(1)};
    inputs.emplace_back(training ? c.output(3) : c.input(3));
    inputs.emplace_back(training ? c.output(4) : c.input(4));
    if (c.num_outputs() == 6) inputs.emplace_back(c.output(5));
    Node* const gradient = c.scope().Add(op, std::move(inputs), std::move(attrs));
    if (gradient == nullptr) return c.scope().status();
    Output dx(gradient, 0);
    if (turned) dx = volume ? Transpose(c, dx, {0, 4, 1, 2, 3}) : Transpose(c, dx, {0, 3, 1, 2});
    c.SetDx(0, dx);
    c.SetDx(1, Output(gradient, 1));
    c.SetDx(2, Output(gradient, 2));
    return absl::OkStatus();
  };
}

}  // namespace

absl::StatusOr<BatchNormFusion> ReadBatchNormFusion(const Node& node) {
  BatchNormFusion fusion;
  if (node.def().FindAttr("activation_mode") == nullptr) return fusion;
  ASSIGN_OR_RETURN(const std::string activation, node.Attr<std::string>("activation_mode"));
  if (activation != "Identity" && activation != "Relu") {
    return InvalidArgument("Unsupported FusedBatchNorm activation mode: ", activation);
  }
  fusion.relu = activation == "Relu";
  ASSIGN_OR_RETURN(const int64_t side_inputs, node.Attr<int64_t>("num_side_inputs"));
  if (side_inputs > 1) return InvalidArgument("FusedBatchNorm accepts at most one side input.");
  fusion.has_side_input = side_inputs == 1;
  return fusion;
}

absl::StatusOr<ChannelView> CheckedBatchNorm(const KernelContext& c, const BatchNormAttrs& attrs,
                                             const BatchNormFusion& fusion) {
  const Shape& x = c.input(0).shape();
  const Tensor& mean = c.input(3);
  const Tensor& variance = c.input(4);
  ASSIGN_OR_RETURN(const ChannelView view, ViewChannels(x, attrs.data_format));
  RETURN_IF_ERROR(CheckVector(c.input(1), "scale"));
  RETURN_IF_ERROR(CheckVector(c.input(2), "offset"));
  RETURN_IF_ERROR(CheckVector(mean, "estimated_mean"));
  RETURN_IF_ERROR(CheckVector(variance, "estimated_variance"));
  RETURN_IF_ERROR(CheckPerChannel(c.input(1), view, "scale"));
  RETURN_IF_ERROR(CheckPerChannel(c.input(2), view, "offset"));
  if (!attrs.is_training) {
    RETURN_IF_ERROR(CheckStatistics(mean, view, "is_training=false", "mean"));
    RETURN_IF_ERROR(CheckStatistics(variance, view, "is_training=false", "variance"));
  } else if (attrs.averaging != 1.0f) {
    RETURN_IF_ERROR(CheckStatistics(mean, view, "exponential_avg_factor != 1", "mean"));
    RETURN_IF_ERROR(CheckStatistics(variance, view, "exponential_avg_factor != 1", "variance"));
  }
  if (fusion.has_side_input && c.input(5).shape() != x) {
    return InvalidArgument("side_input shape must be equal to input shape: ",
                           c.input(5).shape().ToString(), " != ", x.ToString());
  }
  return view;
}

DEFINE_OP(FusedBatchNorm) {
  op.Attr("T: {float}")
      .Attr("epsilon: float = 9.999999747378752e-05")
      .Attr2x("exponential_avg_factor: float = 1.0")
      .Attr("data_format: {'NHWC', 'NCHW'} = 'NHWC'")
      .Attr("is_training: bool = true")
      .Input("x: T")
      .Input("scale: T")
      .Input("offset: T")
      .Input("mean: T")
      .Input("variance: T")
      .Output("y: T")
      .Output("batch_mean: T")
      .Output("batch_variance: T")
      .Output("reserve_space_1: T")
      .Output("reserve_space_2: T")
      .Doc("Batch normalisation per channel, by the statistics of the batch or by given ones.")
      .Shape(InferShape)
      .Gradient(ByOp("FusedBatchNormGrad"))
      .Cpu(New<FusedBatchNorm<float>>(), {{"T", DType::kFloat}})
      .GpuTypes("T", {DType::kFloat}, MakeGpuBatchNorm);
}

DEFINE_OP(FusedBatchNormV2) {
  op.Attr("T: {half, bfloat16, float}")
      .Attr("U: {float}")
      .Attr("epsilon: float = 9.999999747378752e-05")
      .Attr2x("exponential_avg_factor: float = 1.0")
      .Attr("data_format: {'NHWC', 'NCHW'} = 'NHWC'")
      .Attr("is_training: bool = true")
      .Input("x: T")
      .Input("scale: U")
      .Input("offset: U")
      .Input("mean: U")
      .Input("variance: U")
      .Output("y: T")
      .Output("batch_mean: U")
      .Output("batch_variance: U")
      .Output("reserve_space_1: U")
      .Output("reserve_space_2: U")
      .Doc("FusedBatchNorm with parameters of a type of their own.")
      .Shape(InferShape)
      .Gradient(ByOp("FusedBatchNormGradV2"))
      .CpuTypes<Types<Half, Bfloat16, float>>(
          "T", []<typename T>() { return New<FusedBatchNorm<T>>(); }, {{"U", DType::kFloat}})
      .GpuTypes("T", GpuShortFloats(), MakeGpuBatchNorm, {}, {{"U", DType::kFloat}});
}

DEFINE_OP(FusedBatchNormV3) {
  op.Attr("T: {half, bfloat16, float}")
      .Attr("U: {bfloat16, float}")
      .Attr("epsilon: float = 9.999999747378752e-05")
      .Attr2x("exponential_avg_factor: float = 1.0")
      .Attr("data_format: {'NHWC', 'NCHW', 'NDHWC', 'NCDHW'} = 'NHWC'")
      .Attr("is_training: bool = true")
      .Input("x: T")
      .Input("scale: U")
      .Input("offset: U")
      .Input("mean: U")
      .Input("variance: U")
      .Output("y: T")
      .Output("batch_mean: U")
      .Output("batch_variance: U")
      .Output("reserve_space_1: U")
      .Output("reserve_space_2: U")
      .Output("reserve_space_3: U")
      .Doc("FusedBatchNormV2 with a further output that only GPUs use.")
      .Shape(InferShape)
      .Gradient(ByOp("FusedBatchNormGradV3"))
      .CpuTypes<Types<Half, Bfloat16, float>>(
          "T", []<typename T>() { return New<FusedBatchNorm<T>>(); }, {{"U", DType::kFloat}})
      .GpuTypes("T", GpuShortFloats(), MakeGpuBatchNorm, {}, {{"U", DType::kFloat}});
}

DEFINE_OP(_FusedBatchNormEx) {
  op.Attr("T: {half, float, bfloat16}")
      .Attr("U: {float}")
      .Attr("epsilon: float = 9.999999747378752e-05")
      .Attr("exponential_avg_factor: float = 1.0")
      .Attr("num_side_inputs: int >= 0 = 0")
      .Attr("activation_mode: string = 'Identity'")
      .Attr("data_format: {'NHWC', 'NCHW'} = 'NHWC'")
      .Attr("is_training: bool = true")
      .Input("x: T")
      .Input("scale: U")
      .Input("offset: U")
      .Input("mean: U")
      .Input("variance: U")
      .Input("side_input: num_side_inputs * T")
      .Output("y: T")
      .Output("batch_mean: U")
      .Output("batch_variance: U")
      .Output("reserve_space_1: U")
      .Output("reserve_space_2: U")
      .Output("reserve_space_3: U")
      .Doc("FusedBatchNormV3 with a sum and an activation behind it; made by graph rewriting.")
      .Shape(InferShape)
      .CpuTypes<Types<Half, Bfloat16, float>>(
          "T", []<typename T>() { return New<FusedBatchNorm<T>>(); }, {{"U", DType::kFloat}})
      .GpuTypes("T", GpuShortFloats(), MakeGpuBatchNorm, {}, {{"U", DType::kFloat}});
}

}  // namespace muster
