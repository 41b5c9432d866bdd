// Distributions over Philox blocks, number for number those of TensorFlow. Each makes groups of
// kGroup values; group g begins kBlocks * g blocks after the start, so the values do not depend on
// how the work is split.
#pragma once

#include <algorithm>
#include <cmath>
#include <numbers>

#include "muster/ops/random/generator.h"
#include "muster/tensor/dtype.h"

namespace muster {

template <typename T>
struct UniformDistribution {
  static constexpr int kGroup = sizeof(T) == 8 ? 2 : 4;
  static constexpr uint64_t kBlocks = 1;
  static constexpr double kNanosecondsPerGroup = 15;

  void operator()(Philox& generator, T* out) const {
    const Philox::Block w = generator();
    if constexpr (sizeof(T) == 8) {
      out[0] = ToUniformDouble(w[0], w[1]);
      out[1] = ToUniformDouble(w[2], w[3]);
    } else {
      for (int i = 0; i < 4; ++i) out[i] = FromWord(w[i]);
    }
  }

 private:
  static T FromWord(uint32_t word) {
    if constexpr (std::is_same_v<T, Half>) {
      return Half(
          static_cast<float>(Half::FromBits(static_cast<uint16_t>(0x3C00 | (word & 0x3FF)))) -
          1.0f);
    } else if constexpr (std::is_same_v<T, Bfloat16>) {
      return Bfloat16(
          static_cast<float>(Bfloat16::FromBits(static_cast<uint16_t>(0x3F80 | (word & 0x7F)))) -
          1.0f);
    } else {
      return ToUniformFloat(word);
    }
  }
};

// [low, low + range), by remainder: slightly uneven, as TensorFlow's is.
template <typename T>
struct UniformIntDistribution {
  using Unsigned = std::make_unsigned_t<T>;
  static constexpr int kGroup = sizeof(T) == 8 ? 2 : 4;
  static constexpr uint64_t kBlocks = 1;
  static constexpr double kNanosecondsPerGroup = 25;
  Unsigned low;
  Unsigned range;

  void operator()(Philox& generator, T* out) const {
    const Philox::Block w = generator();
    if constexpr (sizeof(T) == 8) {
      for (int i = 0; i < 2; ++i)
        out[i] = static_cast<T>(low + (w[2 * i] | uint64_t{w[2 * i + 1]} << 32) % range);
    } else {
      for (int i = 0; i < 4; ++i) out[i] = static_cast<T>(low + w[i] % range);
    }
  }
};

// A pair of normal values from two uniform ones (Box and Muller).
inline std::array<float, 2> NormalPair(uint32_t a, uint32_t b) {
  const float u = std::max(ToUniformFloat(a), 1.0e-7f);
  const float angle = static_cast<float>(2.0f * std::numbers::pi * ToUniformFloat(b));
  const float radius = std::sqrt(-2.0f * std::log(u));
  return {std::sin(angle) * radius, std::cos(angle) * radius};
}
inline std::array<double, 2> NormalPair(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  const double u = std::max(ToUniformDouble(a, b), 1.0e-7);
  const double angle = 2 * std::numbers::pi * ToUniformDouble(c, d);
  const double radius = std::sqrt(-2.0 * std::log(u));
  return {std::sin(angle) * radius, std::cos(angle) * radius};
}

template <typename T>
struct NormalDistribution {
  static constexpr int kGroup = sizeof(T) == 8 ? 2 : 4;
  static constexpr uint64_t kBlocks = 1;
  static constexpr double kNanosecondsPerGroup = 80;

  void operator()(Philox& generator, T* out) const {
    const Philox::Block w = generator();
    if constexpr (sizeof(T) == 8) {
      const auto [first, second] = NormalPair(w[0], w[1], w[2], w[3]);
      out[0] = first;
      out[1] = second;
    } else {
      for (int i = 0; i < 4; i += 2) {
        const auto [first, second] = NormalPair(w[i], w[i + 1]);
        out[i] = T(first);
        out[i + 1] = T(second);
      }
    }
  }
};

// Normal values with |z| < 2; others are drawn again.
template <typename T>
struct TruncatedNormalDistribution {
  static constexpr int kGroup = sizeof(T) == 8 ? 2 : 4;
  static constexpr uint64_t kBlocks = 64 * kGroup;
  static constexpr double kNanosecondsPerGroup = 120;

  void operator()(Philox& generator, T* out) const {
    PhiloxWords words(generator);
    generator.Skip(kBlocks);
    int filled = 0;
    while (filled < kGroup) {
      const auto pair = Pair(words);
      for (int i = 0; i < 2 && filled < kGroup; ++i) {
        if (std::abs(pair[i]) < 2) out[filled++] = T(pair[i]);
      }
    }
  }

 private:
  static auto Pair(PhiloxWords& words) {
    const uint32_t a = words.Next();
    const uint32_t b = words.Next();
    if constexpr (sizeof(T) == 8) {
      const uint32_t c = words.Next();
      return NormalPair(a, b, c, words.Next());
    } else {
      return NormalPair(a, b);
    }
  }
};

// Writes `count` values; `start` is where the execution's stretch begins.
template <typename T, typename Distribution>
void FillRandom(const KernelContext& c, const Philox& start, T* out, int64_t count,
                const Distribution& distribution) {
  constexpr int kGroup = Distribution::kGroup;
  const int64_t groups = count / kGroup + (count % kGroup != 0);
  c.ParallelFor(groups, Distribution::kNanosecondsPerGroup, [&](int64_t begin, int64_t end) {
    Philox generator = start;
    generator.Skip(static_cast<uint64_t>(begin) * Distribution::kBlocks);
    for (int64_t group = begin; group < end; ++group) {
      const int64_t at = group * kGroup;
      if (count - at >= kGroup) {
        distribution(generator, out + at);
      } else {
        T rest[kGroup];
        distribution(generator, rest);
        std::copy(rest, rest + (count - at), out + at);
      }
    }
  });
}

}  // namespace muster
