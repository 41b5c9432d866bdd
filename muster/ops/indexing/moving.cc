#include "muster/ops/indexing/moving.h"

#include <algorithm>
#include <limits>

namespace muster {
namespace {

constexpr int64_t kThreadsOfRows = 256;
constexpr int64_t kMostBlocksY = 65535;

}  // namespace

const char* GpuWordName(size_t bytes) {
  switch (bytes) {
    case 1:
      return "uint8";
    case 2:
      return "uint16";
    case 4:
      return "uint32";
    case 8:
      return "uint64";
    default:
      return "Word16";
  }
}

absl::StatusOr<TupleAxes> TupleAxesOf(const Shape& shape, int64_t depth) {
  if (depth > kMostTupleAxes) {
    return InvalidArgument("Only indices.shape[-1] values between 1 and ", kMostTupleAxes,
                           " are currently supported.  Requested rank: ", depth);
  }
  TupleAxes axes{};
  axes.depth = static_cast<int>(depth);
  for (int i = 0; i < axes.depth; ++i) axes.sizes[i] = shape.dim(i);
  return axes;
}

GpuGrid GridForRows(const GpuFunction& function, int64_t rows, int64_t columns) {
  GpuGrid grid;
  const auto across = static_cast<int64_t>(
      std::bit_ceil(static_cast<uint64_t>(std::clamp<int64_t>(columns, 1, kThreadsOfRows))));
  const int64_t down = kThreadsOfRows / across;
  const int64_t most_blocks = function.GridForEach(std::numeric_limits<int32_t>::max()).blocks_x;
  const int64_t x = std::min((rows + down - 1) / down, most_blocks);
  const int64_t y = std::min((columns + across - 1) / across,
                             std::min(most_blocks / std::max<int64_t>(x, 1) + 1, kMostBlocksY));
  grid.threads_x = static_cast<unsigned>(across);
  grid.threads_y = static_cast<unsigned>(down);
  grid.blocks_x = static_cast<unsigned>(x);
  grid.blocks_y = static_cast<unsigned>(y);
  return grid;
}

bool RowsAreWide(const void* a, const void* b, int64_t row_bytes) {
  constexpr auto kWide = sizeof(Word16);
  return (reinterpret_cast<uintptr_t>(a) | reinterpret_cast<uintptr_t>(b) |
          static_cast<uintptr_t>(row_bytes)) %
             kWide ==
         0;
}

}  // namespace muster
