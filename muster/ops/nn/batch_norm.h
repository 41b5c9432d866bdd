// What the batch normalisation ops share.
#pragma once

#include "muster/ops/nn/channel_sums.h"

namespace muster {

struct BatchNormAttrs {
  float epsilon = 0;
  float averaging = 1;  // exponential_avg_factor
  bool is_training = true;
  std::string data_format;
};
absl::StatusOr<BatchNormAttrs> ReadBatchNormAttrs(const Node& node);
// What graph rewriting has joined to _FusedBatchNormEx.
struct BatchNormFusion {
  bool relu = false;
  bool has_side_input = false;
};
absl::StatusOr<BatchNormFusion> ReadBatchNormFusion(const Node& node);

absl::Status CheckVector(const Tensor& tensor, absl::string_view what);
// `what` must have one element per channel of x.
absl::Status CheckPerChannel(const Tensor& tensor, const ChannelView& view, absl::string_view what);
// InvalidArgument unless `shape` has four or five axes. As in TensorFlow, the data format need not
// have as many: it only says whether the channels come first.
absl::StatusOr<ChannelView> ViewChannels(const Shape& shape, absl::string_view data_format);

// What the kernels check on every device; gives the view of x.
absl::StatusOr<ChannelView> CheckedBatchNorm(const KernelContext& c, const BatchNormAttrs& attrs,
                                             const BatchNormFusion& fusion);
absl::StatusOr<ChannelView> CheckedBatchNormGrad(const KernelContext& c,
                                                 const BatchNormAttrs& attrs);
// For OpBuilder::GpuTypes.
KernelFactory MakeGpuBatchNorm(DType dtype);
KernelFactory MakeGpuBatchNormGrad(DType dtype);
KernelFactory MakeGpuBatchNormReluGrad(DType dtype);

// Of FusedBatchNormGrad and its later forms.
absl::Status DifferentiateBatchNormGrad(GradientContext& c);

}  // namespace muster
