// Calls of one function that have nothing to do with each other, as those for the tables of a
// model, are made by one launch.
#pragma once

#include <vector>

#include "muster/device/gpu/gpu_rewriter.h"

namespace muster {

// A place of a sequence, with what it may read and write.
struct PlacedCall {
  GpuReplacement replacement;
  bool reaches_all = false;
  std::vector<GpuRange> reads, writes;
};

// The calls that may be bundled are moved ahead to the first of their kind that they can stand at.
void BundleCalls(Gpu& gpu, const std::vector<GpuTracedCall>& calls,
                 std::vector<PlacedCall>& sequence);

}  // namespace muster
