// The attributes of a pooling over three axes, and what its kernels check on every device.
#pragma once

#include "muster/ops/nn/volume.h"

namespace muster {

class Pool3DAttrs {
 public:
  // Of a kernel that takes NDHWC only, or NCDHW too. All shapes are those that the op has;
  // VolumeWindows has them as NDHWC.
  static absl::StatusOr<Pool3DAttrs> Make(const Node& node, bool any_layout);

  absl::StatusOr<VolumeWindows> ForForward(const Shape& input) const;
  // Of MaxPool3DGrad, and of MaxPool3DGradGrad (`is_second`).
  absl::StatusOr<VolumeWindows> ForMaxGrad(const KernelContext& c, bool is_second) const;
  absl::StatusOr<VolumeWindows> ForAvgGrad(const KernelContext& c) const;

  bool channels_first() const { return channels_first_; }
  Shape InputShape(const VolumeWindows& w) const;
  Shape OutputShape(const VolumeWindows& w) const;

 private:
  absl::StatusOr<VolumeWindows> Windows(const Shape& input) const;
  absl::StatusOr<Shape> Pooled(const Shape& input) const;
  Shape ToLast(const Shape& shape) const;
  Shape FromLast(const Shape& shape) const;

  VolumeAttrs attrs_;
  bool channels_first_ = false;
};

}  // namespace muster
