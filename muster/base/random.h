// Philox 4x32-10, the counter-based generator of TensorFlow's random ops, and seeds for those that
// ask for none.
#pragma once

#include <array>
#include <cstdint>

namespace muster {

class Philox {
 public:
  using Block = std::array<uint32_t, 4>;

  Philox() = default;
  Philox(uint64_t seed, uint64_t seed2)
      : key_{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)},
        counter_{0, 0, static_cast<uint32_t>(seed2), static_cast<uint32_t>(seed2 >> 32)} {}

  // The next four words; the 128-bit counter moves on by one.
  Block operator()();
  // Moves the counter on by `blocks`.
  void Skip(uint64_t blocks);

 private:
  std::array<uint32_t, 2> key_{};
  Block counter_{};
};

// Two words from the operating system, for ops whose seeds are both zero.
uint64_t EntropySeed();

}  // namespace muster
