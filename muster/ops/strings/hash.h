// The string hashes that graphs depend on: their values are stored in models.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"

namespace muster {

// FarmHash's Fingerprint64: the same on every machine for ever.
uint64_t Fingerprint64(absl::string_view text);
// MurmurHash64A with TensorFlow's seed.
uint64_t Hash64(absl::string_view text);
// SipHash-2-4 with a key of 128 bits.
uint64_t SipHash24(uint64_t key0, uint64_t key1, absl::string_view text);

}  // namespace muster
