// The structs of strided_copy.cu: boxes of elements that are copied.
#pragma once

#include "muster/ops/indexing/moving.h"

namespace muster {

struct GpuBoxAxis {
  QuickDivider size;
  int64_t from_stride, to_stride;
};
template <int most>
struct GpuBox {
  const void* from;
  void* to;
  uint32_t count;
  int rank;
  GpuBoxAxis axes[most];  // the last one changes fastest
};
constexpr int kMostBoxAxes = 8;
constexpr int kAxesOfSmallBox = 4;
constexpr int kMostBoxes = 16;
// As many as the grid has blocks in y.
struct GpuBoxList {
  GpuBox<kAxesOfSmallBox> list[kMostBoxes];
};

}  // namespace muster
