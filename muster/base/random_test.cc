#include "muster/base/random.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

TEST(PhiloxTest, GivesTheWordsOfTensorFlow) {
  Philox zero(0, 0);
  EXPECT_EQ(zero(), (Philox::Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  Philox seeded(87654321, 2);
  EXPECT_EQ(seeded(), (Philox::Block{0x4856e12b, 0xfbdb694c, 0x473c22f6, 0xccbdb12f}));
}

TEST(PhiloxTest, SkipIsTheSameAsDrawing) {
  Philox drawn(5, 1), skipped(5, 1);
  for (int i = 0; i < 1000; ++i) drawn();
  skipped.Skip(1000);
  EXPECT_EQ(drawn(), skipped());
}

TEST(PhiloxTest, TheCounterCarriesIntoItsUpperHalf) {
  Philox a(1, 2), b(1, 2);
  a.Skip(~uint64_t{0});
  a.Skip(1);
  b.Skip(uint64_t{1} << 63);
  b.Skip(uint64_t{1} << 63);
  EXPECT_EQ(a(), b());
}

}  // namespace
}  // namespace muster
