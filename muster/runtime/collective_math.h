// The arithmetic of reductions among ranks.
#pragma once

#include <cstdint>

#include "muster/runtime/collectives.h"

namespace muster {

// half, bfloat16, float, double, int32 and int64.
bool IsReducible(DType dtype);
// into[i] = merge(into[i], from[i]). Requires: IsReducible(dtype).
void MergeElements(DType dtype, MergeOp merge, const char* from, char* into, int64_t count);
// into[i] /= by; integers are cut towards zero. Requires: IsReducible(dtype), by > 0.
void DivideElements(DType dtype, char* into, int64_t count, int by);

}  // namespace muster
