// The generator that a random kernel keeps between executions, and Philox words one at a time.
#pragma once

#include <bit>
#include <cstdint>

#include "muster/base/random.h"
#include "muster/base/status.h"
#include "muster/params/random_state.h"
#include "muster/runtime/kernel.h"

namespace muster {

// Thread-safe. Listed among the states of the task under the name of its node.
class KernelGenerator {
 public:
  // From the attributes seed and seed2; both zero asks the operating system.
  absl::Status Init(KernelSetup& setup);
  // A generator at the present position; the kernel's own moves on by `blocks`.
  Philox Reserve(uint64_t blocks) { return state_->Reserve(blocks); }

 private:
  RefPtr<RandomState> state_;
  ListedState listed_;
};

// The words of a generator in order.
class PhiloxWords {
 public:
  explicit PhiloxWords(Philox generator) : generator_(generator) {}
  // Continues where one with this generator, block and number of used words was.
  PhiloxWords(Philox generator, const Philox::Block& block, int used)
      : generator_(generator), block_(block), used_(used) {}
  // Begins at word `word` of the generator's sequence.
  PhiloxWords(Philox generator, uint64_t word) : generator_(generator) {
    generator_.Skip(word / 4);
    for (uint64_t i = 0; i < word % 4; ++i) Next();
  }
  uint32_t Next() {
    if (used_ == 4) {
      block_ = generator_();
      used_ = 0;
    }
    return block_[used_++];
  }
  uint64_t Next64() {
    const uint64_t low = Next();
    return low | uint64_t{Next()} << 32;
  }
  float Float();
  double Double();

  const Philox& generator() const { return generator_; }
  const Philox::Block& block() const { return block_; }
  int used() const { return used_; }

 private:
  Philox generator_;
  Philox::Block block_{};
  int used_ = 4;
};

// Random bits as a number in [0, 1): the bits become the mantissa of a number in [1, 2).
inline float ToUniformFloat(uint32_t word) {
  return std::bit_cast<float>(0x3F800000u | (word & 0x7FFFFFu)) - 1.0f;
}
inline double ToUniformDouble(uint32_t high, uint32_t low) {
  return std::bit_cast<double>(uint64_t{0x3FF} << 52 | uint64_t{high & 0xFFFFFu} << 32 | low) - 1.0;
}

inline float PhiloxWords::Float() {
  return ToUniformFloat(Next());
}
inline double PhiloxWords::Double() {
  const uint32_t high = Next();
  return ToUniformDouble(high, Next());
}

// What the two numbers of a stateless op's seed become: the key and the upper half of the counter.
struct StatelessKey {
  uint64_t key = 0;
  uint64_t counter = 0;
};
// Scrambles the two numbers, so that weak seeds are as good as strong ones.
absl::StatusOr<StatelessKey> KeyFromSeed(const Tensor& seed);

// The shape that a random op is asked for: an integer vector of sizes.
absl::StatusOr<Shape> RequestedShape(const Tensor& tensor);

}  // namespace muster
