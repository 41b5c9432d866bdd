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

  // Key and counter: where the generator is.
  using Position = std::array<uint32_t, 6>;
  Position position() const {
    return {key_[0], key_[1], counter_[0], counter_[1], counter_[2], counter_[3]};
  }
  static Philox At(const Position& position) {
    Philox philox;
    philox.key_ = {position[0], position[1]};
    philox.counter_ = {position[2], position[3], position[4], position[5]};
    return philox;
  }

 private:
  std::array<uint32_t, 2> key_{};
  Block counter_{};
};

// Two words from the operating system, for ops whose seeds are both zero.
uint64_t EntropySeed();

}  // namespace muster
