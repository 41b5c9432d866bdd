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
absl::Status CheckVector(const Tensor& tensor, absl::string_view what);
// `what` must have one element per channel of x.
absl::Status CheckPerChannel(const Tensor& tensor, const ChannelView& view, absl::string_view what);
// InvalidArgument unless `shape` has four or five axes. As in TensorFlow, the data format need not
// have as many: it only says whether the channels come first.
absl::StatusOr<ChannelView> ViewChannels(const Shape& shape, absl::string_view data_format);

// Of FusedBatchNormGrad and its later forms.
absl::Status DifferentiateBatchNormGrad(GradientContext& c);

}  // namespace muster
