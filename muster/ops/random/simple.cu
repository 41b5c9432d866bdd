// The distributions of distributions.h. A thread makes whole groups of values.
#include "muster/ops/random/philox.cuh"

template <typename T>
struct RandomGroup {
  static constexpr int size = sizeof(T) == 8 ? 2 : 4;
  alignas(sizeof(T) * size) T values[size];
};

// Of Distribution::Of<T>, where [low, low + range) is for integers.
struct Uniform {
  static constexpr int kBlocksPerValue = 0;  // one for the whole group
  template <typename T>
  __device__ static RandomGroup<T> Draw(Philox generator, uint64, uint64) {
    const PhiloxBlock block = generator.Next();
    RandomGroup<T> group;
    if constexpr (sizeof(T) == 8) {
      for (int i = 0; i < 2; ++i)
        group.values[i] = ToUniformDouble(block.words[2 * i], block.words[2 * i + 1]);
    } else {
      for (int i = 0; i < 4; ++i) group.values[i] = FromWord<T>(block.words[i]);
    }
    return group;
  }

 private:
  template <typename T>
  __device__ static T FromWord(uint32 word) {
    if constexpr (kSame<T, Half>) {
      return Half(float(BitCast<Half>(uint16(0x3C00 | (word & 0x3FF)))) - 1.0f);
    } else if constexpr (kSame<T, Bfloat16>) {
      return Bfloat16(float(BitCast<Bfloat16>(uint16(0x3F80 | (word & 0x7F)))) - 1.0f);
    } else {
      return ToUniformFloat(word);
    }
  }
};

struct UniformInt {
  static constexpr int kBlocksPerValue = 0;
  template <typename T>
  __device__ static RandomGroup<T> Draw(Philox generator, uint64 low, uint64 range) {
    const PhiloxBlock block = generator.Next();
    RandomGroup<T> group;
    if constexpr (sizeof(T) == 8) {
      for (int i = 0; i < 2; ++i) {
        const uint64 word = block.words[2 * i] | uint64(block.words[2 * i + 1]) << 32;
        group.values[i] = T(low + word % range);
      }
    } else {
      for (int i = 0; i < 4; ++i)
        group.values[i] = T(uint32(low) + block.words[i] % uint32(range));
    }
    return group;
  }
};

template <typename R>
struct RandomPair {
  R values[2];
};
__device__ __forceinline__ RandomPair<float> NormalPair(uint32 a, uint32 b) {
  const float u = ToUniformFloat(a);
  const float angle = float(6.283185307179586 * ToUniformFloat(b));
  const float radius = sqrtf(-2.0f * logf(u < 1.0e-7f ? 1.0e-7f : u));
  return {{sinf(angle) * radius, cosf(angle) * radius}};
}
__device__ __forceinline__ RandomPair<double> NormalPair(uint32 a, uint32 b, uint32 c, uint32 d) {
  const double u = ToUniformDouble(a, b);
  const double angle = 6.283185307179586 * ToUniformDouble(c, d);
  const double radius = sqrt(-2.0 * log(u < 1.0e-7 ? 1.0e-7 : u));
  return {{sin(angle) * radius, cos(angle) * radius}};
}

struct Normal {
  static constexpr int kBlocksPerValue = 0;
  template <typename T>
  __device__ static RandomGroup<T> Draw(Philox generator, uint64, uint64) {
    const PhiloxBlock block = generator.Next();
    RandomGroup<T> group;
    for (int i = 0; i < RandomGroup<T>::size; i += 2) {
      if constexpr (sizeof(T) == 8) {
        const RandomPair<double> pair =
            NormalPair(block.words[0], block.words[1], block.words[2], block.words[3]);
        for (int k = 0; k < 2; ++k) group.values[i + k] = pair.values[k];
      } else {
        const RandomPair<float> pair = NormalPair(block.words[i], block.words[i + 1]);
        for (int k = 0; k < 2; ++k) group.values[i + k] = T(pair.values[k]);
      }
    }
    return group;
  }
};

struct TruncatedNormal {
  static constexpr int kBlocksPerValue = 64;
  template <typename T>
  __device__ static RandomGroup<T> Draw(Philox generator, uint64, uint64) {
    PhiloxWords words(generator);
    RandomGroup<T> group;
    int filled = 0;
    while (filled < RandomGroup<T>::size) {
      const auto pair = Pair<T>(words);
      for (int i = 0; i < 2 && filled < RandomGroup<T>::size; ++i) {
        const auto value = pair.values[i];
        if (value < 2 && value > -2) group.values[filled++] = T(value);
      }
    }
    return group;
  }

 private:
  template <typename T>
  __device__ static auto Pair(PhiloxWords& words) {
    const uint32 a = words.Next();
    const uint32 b = words.Next();
    if constexpr (sizeof(T) == 8) {
      const uint32 c = words.Next();
      return NormalPair(a, b, c, words.Next());
    } else {
      return NormalPair(a, b);
    }
  }
};

// A generator in the memory of the card, so that a step that draws is the same work each time.
struct CardGenerator {
  Philox at;
  uint32 blocks_begun;
};
// Where the generator is; it moves on by `reserved` when every block has read that.
__device__ __forceinline__ Philox Reserve(CardGenerator* generator, uint64 reserved) {
  const Philox start = generator->at;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    if (atomicAdd(&generator->blocks_begun, 1u) == gridDim.x - 1) {
      generator->blocks_begun = 0;
      generator->at.Skip(reserved);
    }
  }
  return start;
}

// From `generator`, or from `given` where that is null.
template <typename Distribution, typename T>
__global__ void FillRandom(CardGenerator* generator, uint64 reserved, Philox given, T* out,
                           int64 count, uint64 low, uint64 range) {
  const Philox start = generator == nullptr ? given : Reserve(generator, reserved);
  constexpr int size = RandomGroup<T>::size;
  constexpr uint64 blocks = Distribution::kBlocksPerValue == 0
                                ? 1
                                : uint64(Distribution::kBlocksPerValue) * size;
  const int64 groups = (count + size - 1) / size;
  FOR_EACH_ELEMENT(i, groups) {
    Philox own = start;
    own.Skip(uint64(i) * blocks);
    const RandomGroup<T> group = Distribution::template Draw<T>(own, low, range);
    const int64 at = i * size;
    if (count - at >= size) {
      *reinterpret_cast<RandomGroup<T>*>(out + at) = group;
    } else {
      for (int64 k = 0; k < count - at; ++k) out[at + k] = group.values[k];
    }
  }
}
