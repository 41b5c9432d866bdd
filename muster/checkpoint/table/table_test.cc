#include <map>
#include <random>

#include <gtest/gtest.h>

#include "muster/checkpoint/checkpoint_test.h"
#include "muster/checkpoint/crc32c.h"
#include "muster/checkpoint/table/coding.h"
#include "muster/checkpoint/table/snappy.h"
#include "muster/checkpoint/table/table_reader.h"
#include "muster/checkpoint/table/table_writer.h"
#include "muster/checkpoint/tensor_slice.h"

namespace muster {
namespace {

TEST(Crc32c, GivesTheValuesOfTheStandard) {
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(Crc32c(""), 0u);
  EXPECT_EQ(MaskCrc32c(0), 0xa282ead8u);
  EXPECT_EQ(Crc32c(absl::string_view("\0\0\x80\x3f", 4)), 0xdd54c4abu);
  for (uint32_t crc : {0u, 1u, 0xdd54c4abu, ~0u}) EXPECT_EQ(UnmaskCrc32c(MaskCrc32c(crc)), crc);
}

TEST(Crc32c, IsTheSameByInstructionByTableAndInParts) {
  std::string bytes(100000, '\0');
  std::mt19937 random(7);
  for (char& byte : bytes) byte = static_cast<char>(random());
  for (size_t length : {0, 1, 7, 8, 9, 383, 384, 385, 5000, 12288, 12289, 100000}) {
    for (size_t start : {0, 1, 5}) {
      const absl::string_view part = absl::string_view(bytes).substr(start, length);
      const uint32_t crc = Crc32c(part);
      EXPECT_EQ(crc, internal::ExtendCrc32cByTable(0, part)) << length;
      const absl::string_view head = part.substr(0, part.size() / 3);
      const absl::string_view tail = part.substr(part.size() / 3);
      EXPECT_EQ(crc, ExtendCrc32c(Crc32c(head), tail));
      EXPECT_EQ(crc, CombineCrc32c(Crc32c(head), Crc32c(tail), tail.size()));
    }
  }
}

TEST(Coding, RefusesNumbersThatDoNotFit) {
  std::string bytes;
  AppendVarint(bytes, UINT64_MAX);
  absl::string_view rest = bytes;
  EXPECT_EQ(TakeVarint64(rest), UINT64_MAX);
  EXPECT_TRUE(rest.empty());
  rest = bytes;
  EXPECT_FALSE(TakeVarint32(rest));
  for (size_t length = 0; length < bytes.size(); ++length) {
    rest = absl::string_view(bytes).substr(0, length);
    EXPECT_FALSE(TakeVarint64(rest));
  }
  const std::string too_long(11, '\x80');
  rest = too_long;
  EXPECT_FALSE(TakeVarint64(rest));
}

TEST(Table, GivesBackWhatWasAddedAcrossBlocks) {
  TestFolder folder;
  std::map<std::string, std::string> entries = {{"", "header"}};
  std::mt19937 random(3);
  for (int i = 0; i < 5000; ++i) {
    std::string key = absl::StrCat("layer", random() % 50, "/", random());
    entries[key] = std::string(random() % 200, static_cast<char>(random()));
  }
  entries["large"] = std::string(600000, 'x');
  entries[std::string("\xff\xff")] = "last";
  TableWriter writer;
  for (const auto& [key, value] : entries) writer.Add(key, value);
  const std::string name = folder / "t";
  ASSERT_TRUE(WriteFileAtomically(name, std::move(writer).Finish()).ok());
  const absl::StatusOr<std::unique_ptr<TableReader>> table = TableReader::Open(name);
  ASSERT_TRUE(table.ok()) << table.status();
  auto expected = entries.begin();
  ASSERT_TRUE((*table)
                  ->ForEach([&](absl::string_view key, absl::string_view value) {
                    EXPECT_EQ(key, expected->first);
                    EXPECT_EQ(value, expected->second);
                    ++expected;
                    return absl::OkStatus();
                  })
                  .ok());
  EXPECT_EQ(expected, entries.end());
  for (const auto& [key, value] : entries) EXPECT_EQ(**(*table)->Get(key), value);
  for (const char* absent : {"a", "layer", "largf", "zzz", "\xff\xff\xff"})
    EXPECT_FALSE((*table)->Get(absent)->has_value());
}

TEST(Snappy, DecodesLiteralsAndCopies) {
  // "abcabcabcabc!" : a literal of 3, a copy of 9 that overlaps itself, a literal of 1.
  const std::string copy1(
      "\x0d\x08"
      "abc"
      "\x15\x03"
      "\x00!",
      9);
  EXPECT_EQ(UncompressSnappy(copy1, 100), "abcabcabcabc!");
  const std::string copy2(
      "\x0d\x08"
      "abc"
      "\x22\x03\x00"
      "\x00!",
      10);
  EXPECT_EQ(UncompressSnappy(copy2, 100), "abcabcabcabc!");
  const std::string copy4(
      "\x0d\x08"
      "abc"
      "\x23\x03\x00\x00\x00"
      "\x00!",
      12);
  EXPECT_EQ(UncompressSnappy(copy4, 100), "abcabcabcabc!");
  EXPECT_FALSE(UncompressSnappy(copy4, 12)) << "longer than allowed";
  std::string long_literal("\xc8\x01\xf0\xc7", 4);
  long_literal += std::string(200, 'y');
  EXPECT_EQ(UncompressSnappy(long_literal, 1000), std::string(200, 'y'));
  // Every cut and every changed byte is refused or decoded, never more.
  for (size_t length = 0; length < copy1.size(); ++length)
    EXPECT_FALSE(UncompressSnappy(absl::string_view(copy1).substr(0, length), 100));
  for (size_t at = 0; at < copy1.size(); ++at) {
    for (int byte = 0; byte < 256; ++byte) {
      std::string changed = copy1;
      changed[at] = static_cast<char>(byte);
      const std::optional<std::string> text = UncompressSnappy(changed, 100);
      EXPECT_LE(text.value_or("").size(), 100u);
    }
  }
}

std::string Hex(absl::string_view bytes) {
  std::string text;
  for (unsigned char byte : bytes) absl::StrAppend(&text, absl::Hex(byte, absl::kZeroPad2));
  return text;
}

TEST(TensorSlice, HasTensorFlowsKeys) {
  const auto key = [](int64_t start, int64_t length) {
    return Hex(SliceKey("w", TensorSlice{{{start, length}}}).substr(6));
  };
  EXPECT_EQ(Hex(SliceKey("w", TensorSlice{{{0, 2}, {0, 3}}})), "00770001010280828083");
  EXPECT_EQ(Hex(SliceKey("w", TensorSlice{{{0, 2}, {}}})), "0077000101028082807f");
  EXPECT_EQ(Hex(SliceKey(absl::string_view("a\0\xff", 3), TensorSlice())), "006100ffff00000100");
  EXPECT_EQ(key(63, 64), "bfc040");
  EXPECT_EQ(key(8127, 8192), "dfbfe02000");
  EXPECT_EQ(key(65536, -1),
            "e10000"
            "7f");
  // Keys sort as the numbers do.
  std::string before;
  for (int bits = 0; bits < 62; ++bits) {
    for (int64_t start : {(int64_t{1} << bits) - 1, int64_t{1} << bits}) {
      const std::string now = SliceKey("w", TensorSlice{{{start, 1}}});
      EXPECT_LE(before, now) << start;
      before = now;
    }
  }
}

TEST(TensorSlice, IsParsedAndCheckedAgainstItsShape) {
  const absl::StatusOr<ShapeAndSlice> parsed = ParseShapeAndSlice("4 3 1,2:-");
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->full_shape, Shape({4, 3}));
  EXPECT_EQ(parsed->slice_shape, Shape({2, 3}));
  EXPECT_EQ(parsed->slice.ToString(), "1,2:-");
  for (const char* bad :
       {"", "4", "4 3 0,2", "4 3 0,2:0,9", "4 3 1,0:-", "4 3 -1,2:-", "x 3 0,2:-", "-4 3 0,2:-",
        "4 3 3,9223372036854775807:-", "4 3 a:-", "9223372036854775807 9223372036854775807 -:-"}) {
    EXPECT_FALSE(ParseShapeAndSlice(bad).ok()) << bad;
  }
}

TEST(TensorSlice, CoversAndCopiesByGeometry) {
  const Shape shape({4, 5});
  Tensor whole(DType::kInt32, shape);
  for (int i = 0; i < 20; ++i) whole.data<int32_t>()[i] = i;
  const TensorSlice all = *TensorSlice::Whole(2).Resolved(shape);
  // Four quarters of unequal size, read back as another part.
  std::vector<TensorSlice> parts = {
      {{{0, 3}, {0, 2}}}, {{{0, 3}, {2, 3}}}, {{{3, 1}, {0, 2}}}, {{{3, 1}, {2, 3}}}};
  const TensorSlice wanted{{{1, 3}, {1, 3}}};
  const auto cover = Cover(parts, wanted);
  ASSERT_TRUE(cover.ok() && cover->has_value());
  EXPECT_EQ((*cover)->size(), 4u);
  Tensor result(DType::kInt32, Shape({3, 3}));
  for (const TensorSlice& part : parts) {
    Tensor piece(DType::kInt32, *part.ShapeWithin(shape));
    CopyOverlap(whole, all, part, piece);
    CopyOverlap(piece, part, wanted, result);
  }
  for (int row = 0; row < 3; ++row) {
    for (int column = 0; column < 3; ++column)
      EXPECT_EQ(result.data<int32_t>()[3 * row + column], 5 * (row + 1) + column + 1);
  }
  parts.pop_back();
  EXPECT_FALSE(Cover(parts, wanted)->has_value());
  EXPECT_TRUE(Cover(parts, {{{0, 3}, {0, 5}}})->has_value());
  parts.push_back({{{2, 1}, {0, 5}}});
  EXPECT_FALSE(Cover(parts, wanted).ok()) << "two that overlap";
}

}  // namespace
}  // namespace muster
