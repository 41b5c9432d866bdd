// Batch normalisation on GPUs.
#include <algorithm>

#include "muster/ops/nn/batch_norm.h"
#include "muster/ops/nn/channels.h"

namespace muster {
namespace {

constexpr char kBatchNormFile[] = "nn/batch_norm.cu";

std::string BatchNormFunction(const char* name, DType dtype) {
  return absl::StrCat(name, "<", GpuTypeName(dtype), ">");
}

// As in batch_norm.cu. Without padding, since equal launches are known by their bytes.
struct BatchNormChannels {
  const void* scale;
  const void* old_mean;
  const void* old_variance;
  void* mean;
  void* variance;
  void* used_mean;
  void* used_variance;
  void* factor;
  float epsilon, averaging;
  double correction;
};
struct BatchNormGradChannels {
  const void* scale;
  const void* variance;
  void* dscale;
  void* doffset;
  void* factor;
  void* constant;
  void* slope;
  float epsilon, count;
  int64_t is_training;
};
constexpr int64_t kNumbersInMoments = 4;
constexpr int64_t kNumbersInGradientSums = 2;

class GpuBatchNorm : public GpuKernel {
 public:
  explicit GpuBatchNorm(DType dtype)
      : measure_(*this, kBatchNormFile, BatchNormFunction("MeasureChannels", dtype)),
        join_(*this, kBatchNormFile, "MeasureParts"),
        use_old_(*this, kBatchNormFile, "UseOldStatistics"),
        normalise_(*this, kBatchNormFile, BatchNormFunction("Normalise", dtype)) {}

  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(attrs_, ReadBatchNormAttrs(setup.node()));
    ASSIGN_OR_RETURN(fusion_, ReadBatchNormFusion(setup.node()));
    return GpuKernel::Init(setup);
  }

  absl::Status Compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    ASSIGN_OR_RETURN(const ChannelView view, CheckedBatchNorm(c, attrs_, fusion_));
    ASSIGN_OR_RETURN(Tensor* const y, c.AllocateOutput(0, x.shape()));
    Tensor* vectors[4];
    for (int i = 0; i < 4; ++i) {
      ASSIGN_OR_RETURN(vectors[i], c.AllocateOutput(i + 1, Shape({view.channels})));
    }
    if (c.num_outputs() == 6 && !fusion_.relu) {
      RETURN_IF_ERROR(c.AllocateOutput(5, Shape({0})).status());
    }
    // The gradient through Relu computes with it again (MusterBatchNormReluGrad).
    Tensor factor;
    if (fusion_.relu) {
      ASSIGN_OR_RETURN(Tensor* const kept, c.AllocateOutput(5, Shape({view.channels})));
      factor = *kept;
    } else {
      ASSIGN_OR_RETURN(factor, c.AllocateTemporary(DType::kFloat, Shape({view.channels})));
    }
    if (x.num_elements() == 0) return FillForNothing(view, vectors);
    const auto count = static_cast<double>(view.per_channel());
    const BatchNormChannels channels = {GpuIn(c.input(1)),
                                        GpuIn(c.input(3)),
                                        GpuIn(c.input(4)),
                                        GpuOut(*vectors[0]),
                                        GpuOut(*vectors[1]),
                                        GpuOut(*vectors[2]),
                                        GpuOut(*vectors[3]),
                                        GpuOut(factor),
                                        attrs_.epsilon,
                                        attrs_.averaging,
                                        count / std::max(count - 1, 1.0)};
    if (attrs_.is_training) {
      RETURN_IF_ERROR(Measure(c, view, channels));
    } else {
      RETURN_IF_ERROR(use_old_.LaunchForEach(view.channels, channels, view.channels));
    }
    const Tensor* const side = fusion_.has_side_input ? &c.input(5) : nullptr;
    const ChannelMap map = MapByChannelOf(view, gpu(), {&x, y, side != nullptr ? side : &x});
    return normalise_.Launch(map.grid, GpuIn(x), GpuIn(*vectors[2]), GpuIn(factor),
                             GpuIn(c.input(2)), side != nullptr ? GpuIn(*side) : nullptr,
                             fusion_.relu, GpuOut(*y), map.split);
  }

 private:
  // NaN for the statistics of nothing, and zeros for those that the gradient uses.
  absl::Status FillForNothing(const ChannelView& view, Tensor* const (&vectors)[4]) {
    constexpr unsigned char kNan = 0xFF;
    for (int i = 0; i < 4; ++i) {
      RETURN_IF_ERROR(gpu().Fill(vectors[i]->raw(), i < 2 ? kNan : 0,
                                 static_cast<size_t>(view.channels) * sizeof(float)));
    }
    return absl::OkStatus();
  }

  absl::Status Measure(KernelContext& c, const ChannelView& view,
                       const BatchNormChannels& channels) {
    const Tensor& x = c.input(0);
    const ChannelReduction reduction = ReduceChannelsOf(view, gpu(), {&x});
    ASSIGN_OR_RETURN(Tensor parts, reduction.AllocateParts(c, DType::kFloat, kNumbersInMoments));
    RETURN_IF_ERROR(
        measure_.Launch(reduction.grid, GpuIn(x), GpuOut(parts), reduction.split, channels));
    if (reduction.parts() == 1) return absl::OkStatus();
    const ChannelReduction join = ReducePartsOf(reduction);
    return join_.Launch(join.grid, GpuIn(parts), join.split, channels);
  }

  GpuFunction measure_;
  GpuFunction join_;
  GpuFunction use_old_;
  GpuFunction normalise_;
  BatchNormAttrs attrs_;
  BatchNormFusion fusion_;
};

// Of a normalisation, perhaps with Relu behind it.
class GpuBatchNormGrad : public GpuKernel {
 public:
  GpuBatchNormGrad(DType dtype, bool through_relu)
      : through_relu_(through_relu),
        sum_(*this, kBatchNormFile,
             BatchNormFunction(through_relu ? "SumReluGradients" : "SumGradients", dtype)),
        join_(*this, kBatchNormFile, "SumGradientParts"),
        normalise_(*this, kBatchNormFile,
                   BatchNormFunction(through_relu ? "NormaliseReluGrad" : "NormaliseGrad", dtype)) {
  }

  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(attrs_, ReadBatchNormAttrs(setup.node()));
    return GpuKernel::Init(setup);
  }

  absl::Status Compute(KernelContext& c) override {
    const Tensor& dy = c.input(0);
    const Tensor& x = c.input(1);
    const Tensor& mean = c.input(3);
    ASSIGN_OR_RETURN(const ChannelView view, CheckedBatchNormGrad(c, attrs_));
    if (through_relu_) {
      RETURN_IF_ERROR(CheckPerChannel(c.input(5), view, "factor"));
      RETURN_IF_ERROR(CheckPerChannel(c.input(6), view, "offset"));
    }
    ASSIGN_OR_RETURN(Tensor* const dx, c.AllocateOutput(0, x.shape()));
    ASSIGN_OR_RETURN(Tensor* const dscale, c.AllocateOutput(1, Shape({view.channels})));
    ASSIGN_OR_RETURN(Tensor* const doffset, c.AllocateOutput(2, Shape({view.channels})));
    for (int i = 3; i < c.num_outputs(); ++i)
      RETURN_IF_ERROR(c.AllocateOutput(i, Shape({0})).status());
    if (x.num_elements() == 0) {
      for (Tensor* const sums : {dscale, doffset}) {
        RETURN_IF_ERROR(
            gpu().Fill(sums->raw(), 0, static_cast<size_t>(view.channels) * sizeof(float)));
      }
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(Tensor coefficients,
                     c.AllocateTemporary(DType::kFloat, Shape({3 * view.channels})));
    float* const factor = coefficients.data<float>();
    const BatchNormGradChannels channels = {GpuIn(c.input(2)),
                                            GpuIn(c.input(4)),
                                            GpuOut(*dscale),
                                            GpuOut(*doffset),
                                            factor,
                                            factor + view.channels,
                                            factor + 2 * view.channels,
                                            attrs_.epsilon,
                                            static_cast<float>(view.per_channel()),
                                            attrs_.is_training ? 1 : 0};
    const ChannelReduction reduction = ReduceChannelsOf(view, gpu(), {&dy, &x});
    ASSIGN_OR_RETURN(Tensor parts,
                     reduction.AllocateParts(c, DType::kFloat, kNumbersInGradientSums));
    RETURN_IF_ERROR(through_relu_ ? sum_.Launch(reduction.grid, GpuIn(dy), GpuIn(x), GpuIn(mean),
                                                GpuIn(c.input(5)), GpuIn(c.input(6)), GpuOut(parts),
                                                reduction.split, channels)
                                  : sum_.Launch(reduction.grid, GpuIn(dy), GpuIn(x), GpuIn(mean),
                                                GpuOut(parts), reduction.split, channels));
    if (reduction.parts() > 1) {
      const ChannelReduction join = ReducePartsOf(reduction);
      RETURN_IF_ERROR(join_.Launch(join.grid, GpuIn(parts), join.split, channels));
    }
    const ChannelMap map = MapByChannelOf(view, gpu(), {&dy, &x, dx});
    return through_relu_
               ? normalise_.Launch(map.grid, GpuIn(dy), GpuIn(x), GpuIn(mean), GpuIn(c.input(5)),
                                   GpuIn(c.input(6)), channels, GpuOut(*dx), map.split)
               : normalise_.Launch(map.grid, GpuIn(dy), GpuIn(x), GpuIn(mean), channels,
                                   GpuOut(*dx), map.split);
  }

 private:
  const bool through_relu_;
  GpuFunction sum_;
  GpuFunction join_;
  GpuFunction normalise_;
  BatchNormAttrs attrs_;
};

}  // namespace

KernelFactory MakeGpuBatchNorm(DType dtype) {
  return MakeGpu<GpuBatchNorm>(dtype);
}
KernelFactory MakeGpuBatchNormGrad(DType dtype) {
  return [dtype] { return std::make_unique<GpuBatchNormGrad>(dtype, false); };
}
KernelFactory MakeGpuBatchNormReluGrad(DType dtype) {
  return [dtype] { return std::make_unique<GpuBatchNormGrad>(dtype, true); };
}

}  // namespace muster
