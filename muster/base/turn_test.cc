#include "muster/base/turn.h"

#include <string>

#include <gtest/gtest.h>

namespace muster {
namespace {

TEST(TurnTest, OutsideOfOneNothingWaits) {
  std::string said;
  Turn::AtEnd([&] { said += "a"; });
  EXPECT_EQ(said, "a");
  EXPECT_FALSE(Turn::HasPutOff());
}

TEST(TurnTest, TheOutermostTurnSaysItAll) {
  std::string said;
  {
    const Turn outer;
    {
      const Turn inner;
      Turn::AtEnd([&] {
        said += "a";
        Turn::AtEnd([&] { said += "c"; });
      });
      Turn::AtEnd([&] { said += "b"; });
    }
    EXPECT_EQ(said, "");
    EXPECT_TRUE(Turn::HasPutOff());
  }
  EXPECT_EQ(said, "abc");
  EXPECT_FALSE(Turn::HasPutOff());
}

TEST(TurnTest, ALongTurnSaysItBefore) {
  std::string said;
  const Turn turn;
  Turn::AtEnd([&] { said += "a"; });
  Turn::RunPutOff();
  EXPECT_EQ(said, "a");
}

}  // namespace
}  // namespace muster
