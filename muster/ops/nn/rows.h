// The launch of functions that use rows.cuh.
#pragma once

#include <algorithm>

#include "muster/ops/nn/packs.h"

namespace muster {

// A function with the number of threads that share a row as its last template argument.
class GpuRowFunction {
 public:
  // `expression` lacks that argument and the end: "Softmax<float".
  GpuRowFunction(GpuKernel& kernel, const char* file, const std::string& expression)
      : short_(kernel, file, absl::StrCat(expression, ", 32>")),
        long_(kernel, file, absl::StrCat(expression, ", 512>")) {}

  template <typename... Args>
  absl::Status Launch(int64_t rows, int64_t row_size, const Args&... arguments) const {
    constexpr int64_t kLargestForWarp = 512;
    constexpr int64_t kMostBlocks = int64_t{1} << 30;
    const bool is_short = row_size <= kLargestForWarp;
    constexpr int64_t kRowsPerBlock = 8;
    GpuGrid grid;
    grid.threads_x = is_short ? 32 * kRowsPerBlock : 512;
    const int64_t blocks = is_short ? (rows + kRowsPerBlock - 1) / kRowsPerBlock : rows;
    grid.blocks_x = static_cast<unsigned>(std::min(blocks, kMostBlocks));
    return (is_short ? short_ : long_).Launch(grid, arguments...);
  }

 private:
  GpuFunction short_;
  GpuFunction long_;
};

}  // namespace muster
