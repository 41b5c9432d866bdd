// Trimming of the allocator's cache: memory is kept for the next step until it has been idle for a
// while.
#pragma once

#include <cstddef>

#include "absl/time/time.h"

namespace muster {

// What counts as large here. Smaller blocks are kept for good.
inline constexpr size_t kLargeUseBytes = size_t{1} << 20;
// Notes that at least that much memory was allocated or freed.
void NoteLargeUse();

// To be called every second or so: gives free memory back to the system, once nothing large was
// allocated or freed for kKeepUnusedFor. Cheap when there is nothing to do. Thread-safe.
void TrimUnusedMemory(absl::Time now);
inline constexpr absl::Duration kKeepUnusedFor = absl::Seconds(3);

// The same at once.
void ReleaseUnusedMemory();

}  // namespace muster
