#include "muster/ops/nn/channels.h"

#include <algorithm>

namespace muster {
namespace {

// As in channels.cuh.
constexpr int64_t kMostThreads = 256;

// Threads side by side in a block: enough to read whole cache lines, and so few that the others
// share the rows of a channel. There are fewer parts than rows.
constexpr int64_t kMostWidth = 64;
constexpr int64_t kMostWidthToJoin = 8;

// What a thread should have to do before more parts are worth a second launch, and what is left to
// it then.
constexpr int64_t kElementsPerThread = 16;
constexpr int64_t kElementsPerThreadOfParts = 4;
constexpr int64_t kMostParts = 512;
// Of reductions: as many as a multiprocessor has registers for, so that all run at once.
constexpr int64_t kBlocksPerMultiprocessor = 3;
// What a thread that maps elements has to do before others share its columns, and how many blocks
// there are at most: a multiple of the three or four that run at once.
constexpr int64_t kRowsPerThread = 4;
constexpr int64_t kMapBlocksPerMultiprocessor = 12;

int64_t Divide(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

unsigned PartsFor(int64_t elements_per_thread, int64_t blocks_x, const Gpu& gpu) {
  if (elements_per_thread < 2 * kElementsPerThread) return 1;
  const int64_t useful = elements_per_thread / kElementsPerThreadOfParts;
  const int64_t at_once = gpu.multiprocessors() * kBlocksPerMultiprocessor / blocks_x;
  return static_cast<unsigned>(std::clamp<int64_t>(std::min(useful, at_once), 1, kMostParts));
}

bool AreAligned(std::initializer_list<const Tensor*> tensors) {
  return std::all_of(tensors.begin(), tensors.end(), [](const Tensor* tensor) {
    return reinterpret_cast<uintptr_t>(tensor->raw()) % 16 == 0;
  });
}

// Each thread has `wide` channels.
ChannelReduction OverRows(int64_t rows, int64_t channels, int64_t wide, int64_t most_width) {
  ChannelReduction reduction;
  const int64_t packs = channels / wide;
  const int64_t blocks = std::max<int64_t>(Divide(packs, most_width), 1);
  const int64_t width = std::max<int64_t>(Divide(packs, blocks), 1);
  const int64_t height = std::clamp<int64_t>(rows, 1, kMostThreads / width);
  reduction.split = {rows,
                     channels,
                     1,
                     static_cast<int32_t>(width),
                     static_cast<int32_t>(height),
                     wide > 1 ? 1 : 0};
  reduction.grid.blocks_x = channels == 0 ? 0 : static_cast<unsigned>(blocks);
  reduction.grid.threads_x = static_cast<unsigned>(width * height);
  return reduction;
}

}  // namespace

absl::StatusOr<Tensor> ChannelReduction::AllocateParts(KernelContext& c, DType dtype,
                                                       int64_t numbers_per_total) const {
  const int64_t totals = parts() == 1 ? 0 : parts() * split.channels;
  return c.AllocateTemporary(dtype, Shape({totals * numbers_per_total}));
}

ChannelReduction ReduceChannelsOf(const ChannelView& view, const Gpu& gpu,
                                  std::initializer_list<const Tensor*> inputs) {
  if (view.inner == 1) {
    // kWideOf of channels.cuh.
    const int64_t wide = DTypeSize((*inputs.begin())->dtype()) == 2 ? 8 : 4;
    const bool is_wide = view.channels % wide == 0 && AreAligned(inputs);
    ChannelReduction reduction =
        OverRows(view.outer, view.channels, is_wide ? wide : 1, kMostWidth);
    reduction.grid.blocks_y = PartsFor(Divide(view.outer, reduction.split.height),
                                       std::max(reduction.grid.blocks_x, 1u), gpu);
    return reduction;
  }
  ChannelReduction reduction;
  reduction.split = {view.outer, view.channels, std::max<int64_t>(view.inner, 1), 0, 0, 0};
  if (view.inner == 0) reduction.split.outer = 0;
  reduction.grid.blocks_x = static_cast<unsigned>(view.channels);
  const int64_t warps = std::clamp<int64_t>(Divide(view.per_channel(), 32), 1, kMostThreads / 32);
  reduction.grid.threads_x = static_cast<unsigned>(32 * warps);
  reduction.grid.blocks_y =
      PartsFor(Divide(view.per_channel(), 32 * warps), std::max<int64_t>(view.channels, 1), gpu);
  return reduction;
}

ChannelReduction ReducePartsOf(const ChannelReduction& first) {
  return OverRows(first.parts(), first.split.channels, 1, kMostWidthToJoin);
}

ChannelMap MapByChannelOf(const ChannelView& view, const Gpu& gpu,
                          std::initializer_list<const Tensor*> tensors) {
  const Tensor& first = **tensors.begin();
  const int64_t in_pack = 16 / static_cast<int64_t>(DTypeSize(first.dtype()));
  if (view.inner == 1 && view.channels % in_pack == 0 && AreAligned(tensors)) {
    ChannelReduction rows = OverRows(view.outer, view.channels, in_pack, kMostWidth);
    const int64_t most =
        gpu.multiprocessors() * kMapBlocksPerMultiprocessor / std::max(rows.grid.blocks_x, 1U);
    const int64_t useful = Divide(view.outer, rows.split.height * kRowsPerThread);
    rows.grid.blocks_y = static_cast<unsigned>(std::max<int64_t>(std::min(useful, most), 1));
    return {rows.split, rows.grid};
  }
  const ChannelSplit split = {view.outer, view.channels, view.inner, 0, 0, 0};
  return {split, GpuGridForEach(gpu, PacksIn(first))};
}

}  // namespace muster
