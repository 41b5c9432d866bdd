#include "muster/base/json.h"

#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster {
namespace {

TEST(JsonTest, ReadsEveryKindOfValue) {
  const auto json = Json::Parse(
      R"( {"a": [1, -2.5e3, true, false, null], "b": {"c": "x\n\u00e9\ud83d\ude00"}} )");
  ASSERT_TRUE(json.ok()) << json.status();
  const Json::List& list = *json->Find("a")->list();
  EXPECT_EQ(*list[0].number(), 1);
  EXPECT_EQ(*list[1].number(), -2500);
  EXPECT_TRUE(*list[2].boolean());
  EXPECT_FALSE(*list[3].boolean());
  EXPECT_TRUE(list[4].is_null());
  EXPECT_EQ(*json->Find("b")->Find("c")->string(), "x\n\xC3\xA9\xF0\x9F\x98\x80");
  EXPECT_EQ(json->Find("d"), nullptr);
}

TEST(JsonTest, NumbersAreTheNearestDoubles) {
  for (const auto& [text, value] : std::vector<std::pair<const char*, double>>{
           {"0e92", 0},
           {"-0.0", -0.0},
           {"0.1", 0.1},
           {"9007199254740993", 9007199254740992},
           {"18446744073709551616", 18446744073709551616.0},
           {"1.7976931348623157e308", 1.7976931348623157e308},
           {"1e-400", 0},
           {"2.2250738585072011e-308", 2.2250738585072011e-308},
           {"123456789012345678901234567890.5", 123456789012345678901234567890.5}}) {
    const auto json = Json::Parse(text);
    ASSERT_TRUE(json.ok()) << json.status();
    EXPECT_EQ(*json->number(), value) << text;
  }
}

TEST(JsonTest, RefusesWhatIsNoJson) {
  for (const char* text : {"",
                           "{",
                           "[1,]",
                           "{\"a\":1,}",
                           "{a:1}",
                           "'a'",
                           "01",
                           "1.",
                           ".5",
                           "+1",
                           "1e",
                           "-",
                           "tru",
                           "nan",
                           "\"\\x\"",
                           "\"\\u12\"",
                           "\"\\ud800\"",
                           "\"\\ud800\\u0041\"",
                           "\"\\udc00\"",
                           "\"a\nb\"",
                           "\"a",
                           "1 2",
                           "{\"a\":1,\"a\":2}",
                           "// 1\n1",
                           "[1 2]",
                           "{\"a\" 1}"}) {
    EXPECT_FALSE(Json::Parse(text).ok()) << text;
  }
  EXPECT_FALSE(Json::Parse(std::string(100000, '[')).ok());
  EXPECT_FALSE(Json::Parse("1e400").ok()) << "no double";
  EXPECT_FALSE(Json::Parse(absl::string_view("1\0002", 3)).ok()) << "zeros do not end the text";
}

TEST(JsonTest, AnErrorNamesThePlace) {
  EXPECT_THAT(std::string(Json::Parse("{\"a\": x}").status().message()),
              testing::StartsWith("not JSON: at byte 6, 'x}': "));
  EXPECT_THAT(std::string(Json::Parse("[1").status().message()),
              testing::StartsWith("not JSON: at byte 2, the end: "));
}

TEST(JsonTest, QuotesWhatItReads) {
  const std::string text = "a\"\\\n\x01z";
  EXPECT_EQ(*Json::Parse(JsonQuoted(text)).value().string(), text);
}

}  // namespace
}  // namespace muster
