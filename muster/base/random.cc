#include "muster/base/random.h"

#include <random>

namespace muster {

Philox::Block Philox::operator()() {
  Block c = counter_;
  uint32_t k0 = key_[0];
  uint32_t k1 = key_[1];
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * c[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  Skip(1);
  return c;
}

void Philox::Skip(uint64_t blocks) {
  const uint64_t low = (uint64_t{counter_[1]} << 32 | counter_[0]) + blocks;
  if (low < blocks) {
    const uint64_t high = (uint64_t{counter_[3]} << 32 | counter_[2]) + 1;
    counter_[2] = static_cast<uint32_t>(high);
    counter_[3] = static_cast<uint32_t>(high >> 32);
  }
  counter_[0] = static_cast<uint32_t>(low);
  counter_[1] = static_cast<uint32_t>(low >> 32);
}

uint64_t EntropySeed() {
  thread_local std::random_device device;
  return uint64_t{device()} << 32 | device();
}

}  // namespace muster
