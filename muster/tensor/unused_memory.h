// Memory that is kept because the next step will want it again, until it turns out that none does.
#pragma once

#include <cstddef>

#include "absl/time/time.h"

namespace muster {

// What is called large here. Smaller blocks are kept for good.
inline constexpr size_t kLargeUseBytes = size_t{1} << 20;
// Somebody has taken or left that much memory.
void NoteLargeUse();

// To be called every second or so: gives back to the system what nobody uses, once nothing large
// was taken or left for kKeepUnusedFor. Cheap when there is nothing to do. Thread-safe.
void TrimUnusedMemory(absl::Time now);
inline constexpr absl::Duration kKeepUnusedFor = absl::Seconds(3);

// The same at once.
void ReleaseUnusedMemory();

}  // namespace muster
