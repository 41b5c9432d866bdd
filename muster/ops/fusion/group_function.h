// The functions of fused.cu for groups of nodes.
#pragma once

#include <optional>

#include "muster/ops/fusion/element_groups.h"

namespace muster {

// What the group computes, as one function; none where there is no such function. Requires:
// somebody can read what the group writes.
std::optional<GpuReplacement> FunctionFor(Gpu& gpu, const ElementGroup& group);

}  // namespace muster
