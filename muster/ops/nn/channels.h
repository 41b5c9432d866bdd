// The launch of functions that use channels.cuh.
#pragma once

#include "muster/ops/nn/channel_sums.h"
#include "muster/ops/nn/packs.h"

namespace muster {

// As in channels.cuh. Without padding, since equal launches are known by their bytes.
struct ChannelSplit {
  int64_t outer, channels, inner;
  int32_t width, height;
  int64_t is_wide;
};

struct ChannelReduction {
  ChannelSplit split;
  GpuGrid grid;
  int64_t parts() const { return grid.blocks_y; }
  // For the totals of all channels and parts; empty when there is one part.
  absl::StatusOr<Tensor> AllocateParts(KernelContext& c, DType dtype,
                                       int64_t numbers_per_total) const;
};
// `inputs` are read by it.
ChannelReduction ReduceChannelsOf(const ChannelView& view, const Gpu& gpu,
                                  std::initializer_list<const Tensor*> inputs);
// Joins the parts of `first`, in one part.
ChannelReduction ReducePartsOf(const ChannelReduction& first);

// For MapByChannel: `tensors` are all that it reads and writes, of one type and shape.
struct ChannelMap {
  ChannelSplit split;
  GpuGrid grid;
};
ChannelMap MapByChannelOf(const ChannelView& view, const Gpu& gpu,
                          std::initializer_list<const Tensor*> tensors);

}  // namespace muster
