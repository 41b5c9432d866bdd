#include "muster/ops/strings/hash.h"

#include <bit>
#include <cstring>
#include <utility>

namespace muster {
namespace {

constexpr uint64_t kMul0 = 0xc3a5c85c97cb3127ULL;
constexpr uint64_t kMul1 = 0xb492b66fbe98f273ULL;
constexpr uint64_t kMul2 = 0x9ae16a3b2f90404fULL;

static_assert(std::endian::native == std::endian::little,
              "words are read in the machine's byte order");

uint64_t Load64(const char* p) {
  uint64_t word;
  std::memcpy(&word, p, sizeof(word));
  return word;
}
uint64_t Load32(const char* p) {
  uint32_t word;
  std::memcpy(&word, p, sizeof(word));
  return word;
}
uint64_t Byte(char c) {
  return static_cast<unsigned char>(c);
}
uint64_t FoldHigh(uint64_t x) {
  return x ^ (x >> 47);
}

// Two words into one.
uint64_t Mix(uint64_t a, uint64_t b, uint64_t mul) {
  const uint64_t first = FoldHigh((a ^ b) * mul);
  return FoldHigh((b ^ first) * mul) * mul;
}

uint64_t Farm0To16(const char* s, size_t length) {
  const uint64_t mul = kMul2 + length * 2;
  if (length >= 8) {
    const uint64_t a = Load64(s) + kMul2;
    const uint64_t b = Load64(s + length - 8);
    return Mix(std::rotr(b, 37) * mul + a, (std::rotr(a, 25) + b) * mul, mul);
  }
  if (length >= 4) return Mix(length + (Load32(s) << 3), Load32(s + length - 4), mul);
  if (length == 0) return kMul2;
  const uint64_t y = Byte(s[0]) + (Byte(s[length >> 1]) << 8);
  const uint64_t z = length + (Byte(s[length - 1]) << 2);
  return FoldHigh((y * kMul2) ^ (z * kMul0)) * kMul2;
}

uint64_t Farm17To32(const char* s, size_t length) {
  const uint64_t mul = kMul2 + length * 2;
  const uint64_t a = Load64(s) * kMul1;
  const uint64_t b = Load64(s + 8);
  const uint64_t c = Load64(s + length - 8) * mul;
  const uint64_t d = Load64(s + length - 16) * kMul2;
  return Mix(std::rotr(a + b, 43) + std::rotr(c, 30) + d, a + std::rotr(b + kMul2, 18) + c, mul);
}

uint64_t Farm33To64(const char* s, size_t length) {
  const uint64_t mul = kMul2 + length * 2;
  const uint64_t a = Load64(s) * kMul2;
  const uint64_t b = Load64(s + 8);
  const uint64_t c = Load64(s + length - 8) * mul;
  const uint64_t d = Load64(s + length - 16) * kMul2;
  const uint64_t y = std::rotr(a + b, 43) + std::rotr(c, 30) + d;
  const uint64_t z = Mix(y, a + std::rotr(b + kMul2, 18) + c, mul);
  const uint64_t e = Load64(s + 16) * mul;
  const uint64_t f = Load64(s + 24);
  const uint64_t g = (y + Load64(s + length - 32)) * mul;
  const uint64_t h = (z + Load64(s + length - 24)) * mul;
  return Mix(std::rotr(e + f, 43) + std::rotr(g, 30) + h, e + std::rotr(f + a, 18) + g, mul);
}

using Pair = std::pair<uint64_t, uint64_t>;

// 32 bytes and a seed pair into a pair.
Pair Absorb(const char* s, uint64_t a, uint64_t b) {
  a += Load64(s);
  b = std::rotr(b + a + Load64(s + 24), 21);
  const uint64_t start = a;
  a += Load64(s + 8) + Load64(s + 16);
  b += std::rotr(a, 44);
  return {a + Load64(s + 24), b + start};
}

uint64_t FarmLong(const char* s, size_t length) {
  constexpr uint64_t kSeed = 81;
  uint64_t x = kSeed * kMul2 + Load64(s);
  uint64_t y = kSeed * kMul1 + 113;
  uint64_t z = FoldHigh(y * kMul2 + 113) * kMul2;
  Pair v{0, 0};
  Pair w{0, 0};
  const char* const end = s + ((length - 1) / 64) * 64;
  const size_t rest = (length - 1) & 63;
  const char* const last = end + rest - 63;
  do {
    x = std::rotr(x + y + v.first + Load64(s + 8), 37) * kMul1;
    y = std::rotr(y + v.second + Load64(s + 48), 42) * kMul1;
    x ^= w.second;
    y += v.first + Load64(s + 40);
    z = std::rotr(z + w.first, 33) * kMul1;
    v = Absorb(s, v.second * kMul1, x + w.first);
    w = Absorb(s + 32, z + w.second, y + Load64(s + 16));
    std::swap(z, x);
    s += 64;
  } while (s != end);
  const uint64_t mul = kMul1 + ((z & 0xff) << 1);
  s = last;
  w.first += rest;
  v.first += w.first;
  w.first += v.first;
  x = std::rotr(x + y + v.first + Load64(s + 8), 37) * mul;
  y = std::rotr(y + v.second + Load64(s + 48), 42) * mul;
  x ^= w.second * 9;
  y += v.first * 9 + Load64(s + 40);
  z = std::rotr(z + w.first, 33) * mul;
  v = Absorb(s, v.second * mul, x + w.first);
  w = Absorb(s + 32, z + w.second, y + Load64(s + 16));
  std::swap(z, x);
  return Mix(Mix(v.first, w.first, mul) + FoldHigh(y) * kMul0 + z, Mix(v.second, w.second, mul) + x,
             mul);
}

// The state of SipHash.
struct Sip {
  uint64_t v0, v1, v2, v3;
  void Round() {
    v0 += v1;
    v1 = std::rotl(v1, 13) ^ v0;
    v0 = std::rotl(v0, 32);
    v2 += v3;
    v3 = std::rotl(v3, 16) ^ v2;
    v0 += v3;
    v3 = std::rotl(v3, 21) ^ v0;
    v2 += v1;
    v1 = std::rotl(v1, 17) ^ v2;
    v2 = std::rotl(v2, 32);
  }
  void Word(uint64_t word) {
    v3 ^= word;
    Round();
    Round();
    v0 ^= word;
  }
};

}  // namespace

uint64_t Fingerprint64(absl::string_view text) {
  const char* s = text.data();
  const size_t length = text.size();
  if (length <= 16) return Farm0To16(s, length);
  if (length <= 32) return Farm17To32(s, length);
  if (length <= 64) return Farm33To64(s, length);
  return FarmLong(s, length);
}

uint64_t Hash64(absl::string_view text) {
  constexpr uint64_t kMul = 0xc6a4a7935bd1e995ULL;
  constexpr uint64_t kSeed = 0xDECAFCAFFEULL;
  uint64_t hash = kSeed ^ (text.size() * kMul);
  while (text.size() >= 8) {
    uint64_t word = Load64(text.data()) * kMul;
    word = (word ^ (word >> 47)) * kMul;
    hash = (hash ^ word) * kMul;
    text.remove_prefix(8);
  }
  if (!text.empty()) {
    for (size_t i = 0; i < text.size(); ++i) hash ^= Byte(text[i]) << (8 * i);
    hash *= kMul;
  }
  hash = FoldHigh(hash) * kMul;
  return FoldHigh(hash);
}

uint64_t SipHash24(uint64_t key0, uint64_t key1, absl::string_view text) {
  Sip sip{key0 ^ 0x736f6d6570736575ULL, key1 ^ 0x646f72616e646f6dULL, key0 ^ 0x6c7967656e657261ULL,
          key1 ^ 0x7465646279746573ULL};
  const uint64_t length = text.size();
  while (text.size() >= 8) {
    sip.Word(Load64(text.data()));
    text.remove_prefix(8);
  }
  uint64_t last = length << 56;
  for (size_t i = 0; i < text.size(); ++i) last |= Byte(text[i]) << (8 * i);
  sip.Word(last);
  sip.v2 ^= 0xff;
  for (int i = 0; i < 4; ++i) sip.Round();
  return sip.v0 ^ sip.v1 ^ sip.v2 ^ sip.v3;
}

}  // namespace muster
