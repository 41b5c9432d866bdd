// A bound on memory for programs that feed Muster hostile input.
#pragma once

#include <cstddef>

namespace muster {

// Buffers larger than this cannot be had any more, as if there were no memory. For the whole
// process.
void LimitBufferBytes(size_t bytes);

}  // namespace muster
