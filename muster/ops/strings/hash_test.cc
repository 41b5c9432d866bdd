#include "muster/ops/strings/hash.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster {
namespace {

// One string per branch of the functions: lengths 0, 1, 2, 3, 5, 8, 16, 17, 32, 33, 64, 65, 225,
// 256.
std::vector<std::string> Texts() {
  std::string long_text;
  for (int i = 0; i < 5; ++i) long_text += "The quick brown fox jumps over the lazy dog. ";
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes.push_back(static_cast<char>(i));
  return {"",
          "a",
          "ab",
          "abc",
          "hello",
          "12345678",
          "abcdefghijklmnop",
          "abcdefghijklmnopq",
          std::string(32, 'x'),
          std::string(33, 'y'),
          std::string(64, 'z'),
          std::string(65, 'q'),
          long_text,
          bytes};
}

template <typename Hash>
std::vector<uint64_t> Buckets(Hash hash) {
  std::vector<uint64_t> buckets;
  for (const std::string& text : Texts()) buckets.push_back(hash(text) % (uint64_t{1} << 62));
  return buckets;
}

// The expected numbers are what TensorFlow's kernels give for 2^62 buckets.
TEST(HashTest, FingerprintIsFarmHash) {
  EXPECT_THAT(Buckets(Fingerprint64),
              testing::ElementsAre(1936946117179621455u, 3694432073954588131u, 3066228220894225694u,
                                   2640714258260161385u, 3786372426573024488u, 3430003927990384362u,
                                   1469030743107030717u, 2171023947900359592u, 3678204687145032709u,
                                   3999049019338133246u, 294799756062990872u, 3080958293828885289u,
                                   1781180847324610034u, 679971070136948511u));
}

TEST(HashTest, Hash64IsMurmur) {
  EXPECT_THAT(Buckets(Hash64),
              testing::ElementsAre(105434511174508091u, 2996632905371535868u, 3579204183985781795u,
                                   1046625677629754806u, 1331861223480393034u, 421129128932463287u,
                                   956259514752743408u, 3675176827060214941u, 1793624403848994371u,
                                   3468653955998158666u, 160759053204327832u, 1610706693071186607u,
                                   4435043441443326864u, 738269575436937580u));
}

TEST(HashTest, SipHashTakesAKey) {
  EXPECT_THAT(Buckets([](const std::string& text) { return SipHash24(123, 456, text); }),
              testing::ElementsAre(887865449656487406u, 2150915142212405420u, 1186974370200342541u,
                                   742242908378057305u, 3917950836011642579u, 4004217248140371583u,
                                   800885696213477659u, 3684097491335115187u, 555245353989937375u,
                                   2937988838313661892u, 1673075272679981509u, 1211794358532246187u,
                                   2933826932153085057u, 1745956100030569627u));
}

}  // namespace
}  // namespace muster
