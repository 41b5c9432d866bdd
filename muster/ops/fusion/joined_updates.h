// Updates of several variables by one optimizer, which follow each other, become one launch.
#pragma once

#include <optional>
#include <vector>

#include "muster/device/gpu/gpu_rewriter.h"

namespace muster {

class Gpu;

// Joins launches of apply.cu among the calls that are still in their places: the first of several
// becomes a launch for all of them, the others go. Whether there were any.
bool JoinUpdates(Gpu& gpu, const std::vector<GpuTracedCall>& calls,
                 std::vector<std::optional<GpuReplacement>>& placed);

}  // namespace muster
