// Malformed bytes: decoders and parsers answer with a status and touch nothing else. What these
// tests find, they find under the sanitizers.
#include <random>

#include <gtest/gtest.h>

#include "muster/ops/image/image_codec.h"
#include "muster/ops/input/example_wire.h"

namespace muster {
namespace {

constexpr int kRounds = 2000;

// The same bytes with a few changed, cut off, repeated or inserted.
class Mutator {
 public:
  explicit Mutator(uint32_t seed) : random_(seed) {}
  std::string Mutate(std::string bytes) {
    const int changes = 1 + Below(4);
    for (int i = 0; i < changes && !bytes.empty(); ++i) {
      const size_t at = Below(bytes.size());
      switch (Below(5)) {
        case 0:
          bytes[at] = static_cast<char>(Below(256));
          break;
        case 1:
          bytes.resize(at);
          break;
        case 2:
          bytes.insert(at, bytes.substr(Below(bytes.size()), Below(16)));
          break;
        case 3:
          bytes[at] = static_cast<char>(0xff);
          break;
        default:
          bytes.insert(at, 1, static_cast<char>(Below(256)));
      }
    }
    return bytes;
  }

 private:
  size_t Below(size_t limit) { return random_() % limit; }
  std::mt19937 random_;
};

std::string Delimited(int field, const std::string& bytes) {
  return std::string(1, static_cast<char>(field << 3 | 2)) +
         std::string(1, static_cast<char>(bytes.size())) + bytes;
}

// One feature of every kind, packed and not.
std::string SomeExample() {
  const auto entry = [](const std::string& key, const std::string& feature) {
    return Delimited(1, Delimited(1, key) + Delimited(2, feature));
  };
  const std::string floats(8, '\x3f');
  return Delimited(1, entry("f", Delimited(2, Delimited(1, floats))) +
                          entry("i", Delimited(3, Delimited(1, "\x01\x80\x01"))) +
                          entry("u", Delimited(3, std::string("\x08\x05\x08\x06"))) +
                          entry("b", Delimited(1, Delimited(1, "x") + Delimited(1, "yz"))) +
                          entry("n", ""));
}

void CopyAll(const FeatureView& feature) {
  const std::optional<int64_t> count = CountValues(feature);
  if (!count) return;
  if (feature.type == DType::kString) {
    std::vector<std::string> values(static_cast<size_t>(*count));
    CopyValues(feature, values.data());
  } else if (feature.type == DType::kFloat) {
    std::vector<float> values(static_cast<size_t>(*count));
    CopyValues(feature, values.data());
  } else if (feature.type == DType::kInt64) {
    std::vector<int64_t> values(static_cast<size_t>(*count));
    CopyValues(feature, values.data());
  }
}

TEST(ExampleWire, ReadsEveryKindOfFeature) {
  std::vector<NamedFeature> features;
  const std::string bytes = SomeExample();
  ASSERT_TRUE(ReadExample(bytes, features));
  ASSERT_EQ(features.size(), 5u);
  EXPECT_EQ(CountValues(features[0].feature), 2);
  EXPECT_EQ(CountValues(features[1].feature), 2);
  int64_t values[2] = {};
  CopyValues(features[1].feature, values);
  EXPECT_EQ(values[0], 1);
  EXPECT_EQ(values[1], 128);
  EXPECT_EQ(CountValues(features[2].feature), 2);
  EXPECT_EQ(CountValues(features[3].feature), 2);
  EXPECT_EQ(features[4].feature.type, DType::kInvalid);
}

TEST(ExampleWire, SurvivesMutations) {
  Mutator mutator(1);
  for (int i = 0; i < kRounds; ++i) {
    const std::string bytes = mutator.Mutate(SomeExample());
    std::vector<NamedFeature> features;
    if (ReadExample(bytes, features)) {
      for (const NamedFeature& named : features) CopyAll(named.feature);
    }
    std::vector<NamedFeatureList> lists;
    features.clear();
    if (ReadSequenceExample(Delimited(2, bytes), features, lists)) {
      for (const NamedFeatureList& list : lists) {
        for (const FeatureView& step : list.steps) CopyAll(step);
      }
    }
  }
}

TEST(ExampleWire, GroupsDoNotNestWithoutEnd) {
  std::vector<NamedFeature> features;
  EXPECT_FALSE(ReadExample(std::string(100000, '\x0b'), features));
}

std::vector<uint8_t> SomePixels() {
  std::vector<uint8_t> pixels(9 * 17 * 3);
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<uint8_t>(i * 37);
  return pixels;
}

TEST(Png, SurvivesMutations) {
  const std::vector<uint8_t> pixels = SomePixels();
  const absl::StatusOr<std::string> png =
      EncodePng(reinterpret_cast<const char*>(pixels.data()), DType::kUint8, 9, 17, 3, -1);
  ASSERT_TRUE(png.ok()) << png.status();
  const absl::StatusOr<Tensor> back = DecodePng(*png, 0, DType::kUint8);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(std::vector<uint8_t>(back->data<uint8_t>(), back->data<uint8_t>() + pixels.size()),
            pixels);
  Mutator mutator(2);
  for (int i = 0; i < kRounds; ++i) {
    const std::string bytes = mutator.Mutate(*png);
    DecodePng(bytes, i % 5, i % 2 == 0 ? DType::kUint8 : DType::kUint16).status().IgnoreError();
  }
}

TEST(Jpeg, SurvivesMutations) {
  const std::vector<uint8_t> pixels = SomePixels();
  Mutator mutator(3);
  for (const bool progressive : {false, true}) {
    JpegEncoding how;
    how.progressive = progressive;
    const absl::StatusOr<std::string> jpeg = EncodeJpeg(pixels.data(), 9, 17, how);
    ASSERT_TRUE(jpeg.ok()) << jpeg.status();
    for (int i = 0; i < kRounds / 2; ++i) {
      const std::string bytes = mutator.Mutate(*jpeg);
      // A picture that claims to be huge takes its time, whatever is in it.
      const absl::StatusOr<JpegSize> size = ReadJpegSize(bytes);
      if (size.ok() && int64_t{size->height} * size->width > 1 << 18) continue;
      JpegDecoding decoding;
      decoding.channels = i % 3 == 2 ? 3 : i % 3;
      decoding.ratio = 1 << i % 4;
      decoding.try_recover_truncated = i % 2 == 0;
      decoding.acceptable_fraction = 0.25f;
      const CropWindow crop{1, 2, 3, 4};
      if (i % 5 == 0) decoding.crop = &crop;
      DecodeJpeg(bytes, decoding).status().IgnoreError();
    }
  }
}

TEST(Gif, SurvivesMutations) {
  const std::string gif(
      "GIF89a\x02\0\x02\0\x80\0\0\1\2\3\xfa\xfb\xfc,\0\0\0\0\2\0\2\0\0\2\3\x44\x02\x05\0;", 36);
  ASSERT_TRUE(DecodeGif(gif).ok()) << DecodeGif(gif).status();
  Mutator mutator(4);
  for (int i = 0; i < kRounds; ++i) DecodeGif(mutator.Mutate(gif)).status().IgnoreError();
}

TEST(Bmp, SurvivesMutations) {
  std::string bmp("BM\x4e\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\3\0\0\0\2\0\0\0\1\0\x18\0", 30);
  bmp.append(48, '\x11');
  ASSERT_TRUE(DecodeBmp(bmp, 0).ok()) << DecodeBmp(bmp, 0).status();
  Mutator mutator(5);
  for (int i = 0; i < kRounds; ++i) DecodeBmp(mutator.Mutate(bmp), 0).status().IgnoreError();
}

}  // namespace
}  // namespace muster
