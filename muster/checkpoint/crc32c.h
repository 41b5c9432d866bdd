// CRC-32C (Castagnoli), as every file of TensorFlow's uses it, and the masked form in which it is
// stored.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace muster {

// The checksum of what `crc` covers followed by `bytes`; 0 covers nothing.
uint32_t ExtendCrc32c(uint32_t crc, absl::string_view bytes);
inline uint32_t Crc32c(absl::string_view bytes) {
  return ExtendCrc32c(0, bytes);
}
// The checksum of a followed by b, from those of the parts. Costs a few dozen steps, whatever the
// lengths.
uint32_t CombineCrc32c(uint32_t a, uint32_t b, uint64_t b_length);

// Stored checksums are masked, because a checksum over bytes that hold checksums says little.
inline uint32_t MaskCrc32c(uint32_t crc) {
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}
inline uint32_t UnmaskCrc32c(uint32_t masked) {
  const uint32_t rotated = masked - 0xa282ead8u;
  return (rotated >> 17) | (rotated << 15);
}

namespace internal {
// The slow way, for machines without the instruction and for tests of the other one.
uint32_t ExtendCrc32cByTable(uint32_t crc, absl::string_view bytes);
}  // namespace internal

}  // namespace muster
