// The paddings argument of Pad, PadV2, MirrorPad and MirrorPadGrad.
#pragma once

#include <vector>

#include "muster/graph/shape_context.h"
#include "muster/tensor/tensor.h"

namespace muster {

struct Padding {
  int64_t before = 0;
  int64_t after = 0;
};

// One Padding per dimension of `input`, none negative.
absl::StatusOr<std::vector<Padding>> ReadPaddings(const Tensor& paddings, const Shape& input);
// `input` grown by its paddings; InvalidArgument on overflow.
absl::StatusOr<Shape> PaddedShape(const Shape& input, const std::vector<Padding>& paddings);
// Shape rule of ops with paddings at input 1; `sign` is -1 for the op that takes them away.
absl::Status PaddedShapeRule(ShapeContext& c, int sign);

}  // namespace muster
