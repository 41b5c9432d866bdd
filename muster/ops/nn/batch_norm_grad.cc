// Gradients of the batch normalisation ops.
#include <cmath>

#include "muster/ops/nn/batch_norm.h"
#include "muster/ops/nn/packs.h"

namespace muster {
namespace {

template <typename T>
class FusedBatchNormGrad : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(attrs_, ReadBatchNormAttrs(setup.node()));
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    const Tensor dy = c.input(0);
    const Tensor x = c.input(1);
    const Tensor scale = c.input(2);
    const Tensor mean = c.input(3);
    const Tensor variance = c.input(4);
    ASSIGN_OR_RETURN(const ChannelView view, CheckedBatchNormGrad(c, attrs_));
    ASSIGN_OR_RETURN(Tensor * dx, c.AllocateOutput(0, x.shape()));
    ASSIGN_OR_RETURN(Tensor * dscale, c.AllocateOutput(1, Shape({view.channels})));
    ASSIGN_OR_RETURN(Tensor * doffset, c.AllocateOutput(2, Shape({view.channels})));
    for (int i : {3, 4}) RETURN_IF_ERROR(c.AllocateOutput(i, Shape({0})).status());
    const int64_t n = view.channels;
    float* const ds = dscale->data<float>();
    float* const db = doffset->data<float>();
    if (x.num_elements() == 0) {
      std::fill(ds, ds + n, 0.0f);
      std::fill(db, db + n, 0.0f);
      return absl::OkStatus();
    }
    const T* const g = dy.data<T>();
    const T* const v = x.data<T>();
    const float* const m = mean.data<float>();
    const std::vector<double> sums =
        SumPerChannel(c, view, [g](int64_t i, int64_t) { return static_cast<float>(g[i]); });
    const std::vector<double> products =
        SumPerChannel(c, view, [g, v, m](int64_t i, int64_t channel) {
          return static_cast<float>(g[i]) * (static_cast<float>(v[i]) - m[channel]);
        });
    // dx = factor * (dy - constant - slope * (x - mean)); the last two only when the statistics
    // depend on x.
    std::vector<float> coefficients(static_cast<size_t>(3 * n));
    float* const factor = coefficients.data();
    float* const constant = factor + n;
    float* const slope = constant + n;
    const double count = static_cast<double>(view.per_channel());
    for (int64_t i = 0; i < n; ++i) {
      const float total = variance.data<float>()[i] + attrs_.epsilon;
      const float inverse = 1.0f / std::sqrt(total);
      factor[i] = scale.data<float>()[i] * inverse;
      constant[i] = attrs_.is_training ? static_cast<float>(sums[i] / count) : 0.0f;
      slope[i] = attrs_.is_training ? static_cast<float>(products[i] / count) / total : 0.0f;
      ds[i] = static_cast<float>(products[i]) * inverse;
      db[i] = static_cast<float>(sums[i]);
    }
    T* const out = dx->data<T>();
    ForEachElement(c, view, [=](int64_t i, int64_t channel) {
      const float centred = static_cast<float>(v[i]) - m[channel];
      out[i] = static_cast<T>(factor[channel] * ((static_cast<float>(g[i]) - constant[channel]) -
                                                 slope[channel] * centred));
    });
    return absl::OkStatus();
  }

 private:
  BatchNormAttrs attrs_;
};

absl::Status InferShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(const BatchNormAttrs attrs, ReadBatchNormAttrs(c.node()));
  const int rank = static_cast<int>(attrs.data_format.size());
  ASSIGN_OR_RETURN(PartialShape dy, c.WithRank(c.input(0), rank));
  ASSIGN_OR_RETURN(const PartialShape x, c.WithRank(c.input(1), rank));
  const int axis = attrs.data_format[1] == 'C' ? 1 : rank - 1;
  ASSIGN_OR_RETURN(int64_t channels, ShapeContext::MergeDims(dy.dim(axis), x.dim(axis)));
  for (int i = 2; i < 5; ++i) {
    ASSIGN_OR_RETURN(const PartialShape vector, c.WithRank(c.input(i), 1));
    ASSIGN_OR_RETURN(channels, ShapeContext::MergeDims(channels, vector.dim(0)));
  }
  dy.Set(axis, channels);
  c.SetOutput(0, std::move(dy));
  c.SetOutput(1, PartialShape::Vector(channels));
  c.SetOutput(2, PartialShape::Vector(channels));
  c.SetOutput(3, PartialShape::Vector(0));
  c.SetOutput(4, PartialShape::Vector(0));
  return absl::OkStatus();
}

absl::Status InferReluGradShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(const BatchNormAttrs attrs, ReadBatchNormAttrs(c.node()));
  const PartialShape x = c.input(1);
  c.SetOutput(0, x);
  PartialShape channels = PartialShape::Vector(-1);
  if (x.known_rank() && x.rank() == 4)
    channels = PartialShape::Vector(x.dim(attrs.data_format[1] == 'C' ? 1 : 3));
  c.SetOutput(1, channels);
  c.SetOutput(2, channels);
  return absl::OkStatus();
}

using BatchNormTypes = Types<Half, Bfloat16, float>;

}  // namespace

absl::StatusOr<ChannelView> CheckedBatchNormGrad(const KernelContext& c,
                                                 const BatchNormAttrs& attrs) {
  const Tensor& dy = c.input(0);
  const Tensor& x = c.input(1);
  const Tensor& scale = c.input(2);
  const Tensor& mean = c.input(3);
  const Tensor& variance = c.input(4);
  RETURN_IF_ERROR(ViewChannels(dy.shape(), attrs.data_format).status());
  ASSIGN_OR_RETURN(const ChannelView view, ViewChannels(x.shape(), attrs.data_format));
  RETURN_IF_ERROR(CheckVector(scale, "scale"));
  RETURN_IF_ERROR(CheckVector(mean, "saved mean"));
  RETURN_IF_ERROR(CheckVector(variance, "saved variance"));
  if (x.shape() != dy.shape()) {
    return InvalidArgument("x and y_backprop must have same shape, but x has shape ",
                           x.shape().ToString(), " and y_backprop has shape ",
                           dy.shape().ToString());
  }
  RETURN_IF_ERROR(CheckPerChannel(scale, view, "scale"));
  RETURN_IF_ERROR(CheckPerChannel(mean, view, "reserve_space_1"));
  RETURN_IF_ERROR(CheckPerChannel(variance, view, "reserve_space_2"));
  return view;
}

DEFINE_OP(FusedBatchNormGrad) {
  op.Attr("T: {float}")
      .Attr("epsilon: float = 9.999999747378752e-05")
      .Attr("data_format: {'NHWC', 'NCHW'} = 'NHWC'")
      .Attr("is_training: bool = true")
      .Input("y_backprop: T")
      .Input("x: T")
      .Input("scale: T")
      .Input("reserve_space_1: T")
      .Input("reserve_space_2: T")
      .Output("x_backprop: T")
      .Output("scale_backprop: T")
      .Output("offset_backprop: T")
      .Output("reserve_space_3: T")
      .Output("reserve_space_4: T")
      .Doc("Gradient of FusedBatchNorm.")
      .Shape(InferShape)
      .Gradient(DifferentiateBatchNormGrad)
      .Cpu(New<FusedBatchNormGrad<float>>(), {{"T", DType::kFloat}})
      .GpuTypes("T", {DType::kFloat}, MakeGpuBatchNormGrad);
}

DEFINE_OP(FusedBatchNormGradV2) {
  op.Attr("T: {half, bfloat16, float}")
      .Attr("U: {float}")
      .Attr("epsilon: float = 9.999999747378752e-05")
      .Attr("data_format: {'NHWC', 'NCHW'} = 'NHWC'")
      .Attr("is_training: bool = true")
      .Input("y_backprop: T")
      .Input("x: T")
      .Input("scale: float")
      .Input("reserve_space_1: U")
      .Input("reserve_space_2: U")
      .Output("x_backprop: T")
      .Output("scale_backprop: U")
      .Output("offset_backprop: U")
      .Output("reserve_space_3: U")
      .Output("reserve_space_4: U")
      .Doc("Gradient of FusedBatchNormV2.")
      .Shape(InferShape)
      .Gradient(DifferentiateBatchNormGrad)
      .CpuTypes<BatchNormTypes>("T", []<typename T>() { return New<FusedBatchNormGrad<T>>(); },
                                {{"U", DType::kFloat}})
      .GpuTypes("T", GpuShortFloats(), MakeGpuBatchNormGrad, {}, {{"U", DType::kFloat}});
}

DEFINE_OP(FusedBatchNormGradV3) {
  op.Attr("T: {half, bfloat16, float}")
      .Attr("U: {float}")
      .Attr("epsilon: float = 9.999999747378752e-05")
      .Attr("data_format: {'NHWC', 'NCHW', 'NDHWC', 'NCDHW'} = 'NHWC'")
      .Attr("is_training: bool = true")
      .Input("y_backprop: T")
      .Input("x: T")
      .Input("scale: float")
      .Input("reserve_space_1: U")
      .Input("reserve_space_2: U")
      .Input("reserve_space_3: U")
      .Output("x_backprop: T")
      .Output("scale_backprop: U")
      .Output("offset_backprop: U")
      .Output("reserve_space_4: U")
      .Output("reserve_space_5: U")
      .Doc("Gradient of FusedBatchNormV3.")
      .Shape(InferShape)
      .Gradient(DifferentiateBatchNormGrad)
      .CpuTypes<BatchNormTypes>("T", []<typename T>() { return New<FusedBatchNormGrad<T>>(); },
                                {{"U", DType::kFloat}})
      .GpuTypes("T", GpuShortFloats(), MakeGpuBatchNormGrad, {}, {{"U", DType::kFloat}});
}

// What a rewrite puts in the place of ReluGrad and FusedBatchNormGrad on GPUs (graph/rewrite).
DEFINE_OP(MusterBatchNormReluGrad) {
  op.Attr("T: {half, bfloat16, float}")
      .Attr("epsilon: float = 9.999999747378752e-05")
      .Attr("data_format: {'NHWC', 'NCHW'} = 'NHWC'")
      .Attr("is_training: bool = true")
      .Input("y_backprop: T")
      .Input("x: T")
      .Input("scale: float")
      .Input("mean: float")
      .Input("variance: float")
      .Input("factor: float")
      .Input("offset: float")
      .Output("x_backprop: T")
      .Output("scale_backprop: float")
      .Output("offset_backprop: float")
      .Doc(
          "Gradient of a batch normalisation through the Relu behind it. `factor` is what the "
          "normalisation has multiplied with: reserve_space_3 of _FusedBatchNormEx.")
      .Shape(InferReluGradShape)
      .GpuTypes("T", GpuShortFloats(), MakeGpuBatchNormReluGrad);
}

}  // namespace muster
