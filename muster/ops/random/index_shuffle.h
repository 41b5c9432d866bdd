// A pseudorandom permutation of the numbers 0 .. max_index, one number at a time.
#pragma once

#include <array>
#include <cstdint>

namespace muster {

// Where `index` goes. The permutation is that of TensorFlow's RandomIndexShuffle: a Simon cipher on
// as many bits as max_index has, walked until it comes back into the range.
// Requires: index <= max_index, rounds even and at least 4.
uint64_t ShuffledIndex(uint64_t index, const std::array<uint32_t, 3>& key, uint64_t max_index,
                       int64_t rounds);

}  // namespace muster
