// What _FusedConv2D does behind its convolution.
#pragma once

#include "muster/ops/nn/fused_activation.h"
#include "muster/ops/op.h"

namespace muster {

// Adds a bias, and maybe a tensor, or normalises; then activates.
struct FusedConv {
  float epsilon = 0;
  float alpha = 0;
  bool batch_norm = false;
  bool adds = false;
  Activation activation = Activation::kNone;
};
absl::StatusOr<FusedConv> ReadFusedConv(const KernelSetup& setup, DType dtype);
// The shapes of the arguments behind the filter.
absl::Status CheckFusedArguments(const KernelContext& c, const FusedConv& fused, int64_t channels,
                                 const Shape& output);

}  // namespace muster
