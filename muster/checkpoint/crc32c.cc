#include "muster/checkpoint/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace muster {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78u;  // bits reversed: the lowest bit is x^31

// --- Eight tables: byte i of a word, followed by 7 - i zero bytes.
using Tables = std::array<std::array<uint32_t, 256>, 8>;

constexpr Tables MakeTables() {
  Tables tables{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    tables[0][i] = crc;
  }
  for (size_t t = 1; t < tables.size(); ++t) {
    for (uint32_t i = 0; i < 256; ++i) {
      const uint32_t before = tables[t - 1][i];
      tables[t][i] = (before >> 8) ^ tables[0][before & 0xff];
    }
  }
  return tables;
}
constexpr Tables kTables = MakeTables();

// --- Polynomials over GF(2) modulo the CRC's: what appending zero bytes does to a checksum.
constexpr uint32_t Multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (uint32_t mask = 1u << 31; mask != 0; mask >>= 1) {
    if ((a & mask) != 0) product ^= b;
    b = (b & 1) != 0 ? (b >> 1) ^ kPolynomial : b >> 1;
  }
  return product;
}

// x^(2^k) for every k.
constexpr std::array<uint32_t, 67> MakePowers() {
  std::array<uint32_t, 67> powers{};
  powers[0] = 1u << 30;  // x
  for (size_t k = 1; k < powers.size(); ++k) powers[k] = Multiply(powers[k - 1], powers[k - 1]);
  return powers;
}
constexpr std::array<uint32_t, 67> kPowers = MakePowers();

// x^(8 * bytes).
constexpr uint32_t ZerosFactor(uint64_t bytes) {
  uint32_t factor = 1u << 31;  // 1
  for (size_t k = 3; bytes != 0; bytes >>= 1, ++k) {
    if ((bytes & 1) != 0) factor = Multiply(kPowers[k], factor);
  }
  return factor;
}

#if defined(__x86_64__)

// Appending kBytes zeros, by table: the product with a constant, one byte at a time.
template <size_t kBytes>
struct Zeros {
  static constexpr std::array<std::array<uint32_t, 256>, 4> Make() {
    std::array<std::array<uint32_t, 256>, 4> table{};
    const uint32_t factor = ZerosFactor(kBytes);
    for (size_t byte = 0; byte < 4; ++byte) {
      for (size_t bit = 0; bit < 8; ++bit) {
        table[byte][size_t{1} << bit] = Multiply(factor, 1u << (8 * byte + bit));
      }
      for (size_t i = 1; i < 256; ++i) {
        const size_t low = i & (~i + 1);
        if (low != i) table[byte][i] = table[byte][low] ^ table[byte][i ^ low];
      }
    }
    return table;
  }
  static constexpr std::array<std::array<uint32_t, 256>, 4> kTable = Make();
  static uint32_t Append(uint32_t crc) {
    return kTable[0][crc & 0xff] ^ kTable[1][(crc >> 8) & 0xff] ^ kTable[2][(crc >> 16) & 0xff] ^
           kTable[3][crc >> 24];
  }
};

inline uint64_t Word(const char* p) {
  uint64_t word;
  std::memcpy(&word, p, sizeof(word));
  return word;
}

// The instruction takes three cycles but one can start in each: three streams side by side.
template <size_t kBytes>
__attribute__((target("sse4.2"))) uint64_t ThreeStreams(uint64_t crc, const char*& p,
                                                        size_t& left) {
  while (left >= 3 * kBytes) {
    uint64_t second = 0;
    uint64_t third = 0;
    for (size_t i = 0; i < kBytes; i += 8) {
      crc = _mm_crc32_u64(crc, Word(p + i));
      second = _mm_crc32_u64(second, Word(p + kBytes + i));
      third = _mm_crc32_u64(third, Word(p + 2 * kBytes + i));
    }
    crc = Zeros<kBytes>::Append(static_cast<uint32_t>(crc)) ^ second;
    crc = Zeros<kBytes>::Append(static_cast<uint32_t>(crc)) ^ third;
    p += 3 * kBytes;
    left -= 3 * kBytes;
  }
  return crc;
}

__attribute__((target("sse4.2"))) uint32_t ExtendByInstruction(uint32_t start,
                                                               absl::string_view bytes) {
  const char* p = bytes.data();
  size_t left = bytes.size();
  uint64_t crc = ~start;
  crc = ThreeStreams<4096>(crc, p, left);
  crc = ThreeStreams<128>(crc, p, left);
  for (; left >= 8; p += 8, left -= 8) crc = _mm_crc32_u64(crc, Word(p));
  auto narrow = static_cast<uint32_t>(crc);
  for (; left > 0; ++p, --left) narrow = _mm_crc32_u8(narrow, static_cast<uint8_t>(*p));
  return ~narrow;
}

#endif

}  // namespace

namespace internal {

uint32_t ExtendCrc32cByTable(uint32_t crc, absl::string_view bytes) {
  const auto* p = reinterpret_cast<const unsigned char*>(bytes.data());
  size_t left = bytes.size();
  crc = ~crc;
  for (; left >= 8; p += 8, left -= 8) {
    crc ^= uint32_t{p[0]} | uint32_t{p[1]} << 8 | uint32_t{p[2]} << 16 | uint32_t{p[3]} << 24;
    crc = kTables[7][crc & 0xff] ^ kTables[6][(crc >> 8) & 0xff] ^ kTables[5][(crc >> 16) & 0xff] ^
          kTables[4][crc >> 24] ^ kTables[3][p[4]] ^ kTables[2][p[5]] ^ kTables[1][p[6]] ^
          kTables[0][p[7]];
  }
  for (; left > 0; ++p, --left) crc = (crc >> 8) ^ kTables[0][(crc ^ *p) & 0xff];
  return ~crc;
}

}  // namespace internal

uint32_t ExtendCrc32c(uint32_t crc, absl::string_view bytes) {
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2") != 0;
  if (has_instruction) return ExtendByInstruction(crc, bytes);
#endif
  return internal::ExtendCrc32cByTable(crc, bytes);
}

uint32_t CombineCrc32c(uint32_t a, uint32_t b, uint64_t b_length) {
  return Multiply(ZerosFactor(b_length), a) ^ b;
}

}  // namespace muster
