// Philox 4x32-10 as muster/base/random.h has it, and numbers made of its words as generator.h.
#pragma once

#include "muster/ops/gpu.cuh"

struct PhiloxBlock {
  uint32 words[4];
};

struct Philox {
  uint32 key[2];
  uint32 counter[4];

  __device__ __forceinline__ PhiloxBlock Next() {
    uint32 c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32 k0 = key[0], k1 = key[1];
#pragma unroll
    for (int round = 0; round < 10; ++round) {
      const uint64 p0 = uint64(0xD2511F53u) * c0;
      const uint64 p1 = uint64(0xCD9E8D57u) * c2;
      c0 = uint32(p1 >> 32) ^ c1 ^ k0;
      c1 = uint32(p1);
      c2 = uint32(p0 >> 32) ^ c3 ^ k1;
      c3 = uint32(p0);
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    Skip(1);
    return {{c0, c1, c2, c3}};
  }
  __device__ __forceinline__ void Skip(uint64 blocks) {
    const uint64 low = (uint64(counter[1]) << 32 | counter[0]) + blocks;
    if (low < blocks) {
      const uint64 high = (uint64(counter[3]) << 32 | counter[2]) + 1;
      counter[2] = uint32(high);
      counter[3] = uint32(high >> 32);
    }
    counter[0] = uint32(low);
    counter[1] = uint32(low >> 32);
  }
};

// The words of a generator in order.
struct PhiloxWords {
  Philox generator;
  PhiloxBlock block;
  int used = 4;

  __device__ __forceinline__ explicit PhiloxWords(const Philox& from) : generator(from) {}
  __device__ __forceinline__ uint32 Next() {
    if (used == 4) {
      block = generator.Next();
      used = 0;
    }
    return block.words[used++];
  }
};

__device__ __forceinline__ float ToUniformFloat(uint32 word) {
  return BitCast<float>(0x3F800000u | (word & 0x7FFFFFu)) - 1.0f;
}
__device__ __forceinline__ double ToUniformDouble(uint32 high, uint32 low) {
  return BitCast<double>(uint64(0x3FF) << 52 | uint64(high & 0xFFFFFu) << 32 | low) - 1.0;
}
