// Windows over volumes [batch, depth, height, width, channels], for Conv3D and its kin and for
// pooling over three axes.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "muster/ops/op.h"

namespace muster {

// One of the three axes.
struct VolumeAxis {
  int64_t size = 0;
  int64_t window = 1;
  int64_t stride = 1;
  int64_t pad = 0;  // before the first cell
  int64_t out = 0;

  // The cells of window `i` that are inside: [begin, end).
  int64_t begin(int64_t i) const { return std::max<int64_t>(i * stride - pad, 0); }
  int64_t end(int64_t i) const { return std::min(i * stride - pad + window, size); }
};

struct VolumeAttrs {
  std::vector<int64_t> window;  // five numbers; pooling only
  std::vector<int64_t> strides;
  std::vector<int64_t> dilations;  // convolutions only
  std::string padding;
  std::string data_format;

  // Where the channels stand; the three axes of space begin at `space`.
  int channels() const { return data_format == "NCDHW" ? 1 : 4; }
  int space() const { return data_format == "NCDHW" ? 2 : 1; }
};
absl::StatusOr<VolumeAttrs> ReadVolumeAttrs(const Node& node);

struct VolumeWindows {
  int64_t batch = 0;
  int64_t channels = 0;
  std::array<VolumeAxis, 3> axes;

  int64_t cells() const { return axes[0].size * axes[1].size * axes[2].size; }
  int64_t out_cells() const { return axes[0].out * axes[1].out * axes[2].out; }
  Shape output_shape(int64_t out_channels) const {
    return Shape({batch, axes[0].out, axes[1].out, axes[2].out, out_channels});
  }
};
// Checks ranks, sizes and that no product overflows. `input` is NDHWC; `window` has three sizes.
absl::StatusOr<VolumeWindows> MakeVolumeWindows(const VolumeAttrs& attrs, const Shape& input,
                                                absl::Span<const int64_t> window);

// Output shape of windows of these sizes (-1: unknown) with `channels` channels.
absl::StatusOr<PartialShape> InferVolume(ShapeContext& c, const PartialShape& input,
                                         const VolumeAttrs& attrs, absl::Span<const int64_t> window,
                                         int64_t channels);

}  // namespace muster
