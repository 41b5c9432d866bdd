// What Conv3D and its gradients check before they look at an element, on every device.
#pragma once

#include <string>

#include "muster/ops/nn/volume.h"
#include "muster/ops/nn/window.h"

namespace muster {

// Steps of space only, and of the op itself that they are larger than 0.
absl::Status CheckConv3DAttrs(const VolumeAttrs& attrs);
// The same of a gradient, in two parts: what comes before the layout and the dilations, which not
// every device takes, and what comes behind.
absl::Status CheckConv3DLengths(const VolumeAttrs& attrs);
absl::Status CheckConv3DSteps(const VolumeAttrs& attrs, const std::vector<int64_t>& steps,
                              absl::string_view what);
// Whether the steps of the three axes of space are all 1.
bool AreOneInSpace(const VolumeAttrs& attrs, const std::vector<int64_t>& steps);
// What TensorFlow's kernel of a gradient is called in errors: "Conv3DBackpropInputOp".
std::string Conv3DGradientLabel(const Node& node);

// The shape of the output of any layout and dilation.
absl::StatusOr<Shape> Conv3DOutputShape(const VolumeAttrs& attrs, const Shape& input,
                                        const Shape& filter);
// Whether the three shapes of a gradient fit each other. `in_groups`: the channels may be in
// groups.
absl::Status CheckConv3DGradient(const VolumeAttrs& attrs, absl::string_view label,
                                 const Shape& input, const Shape& filter, const Shape& dy,
                                 bool in_groups);
// The shapes that gradients are given as numbers.
absl::StatusOr<Shape> Conv3DInputShape(const Tensor& sizes);
absl::StatusOr<Shape> Conv3DFilterShape(const Tensor& sizes);

}  // namespace muster
