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

TEST(TurnTest, WhoeverWaitsSaysItBefore) {
  const auto scheduler = SimulatedScheduler::Create(1);
  std::string said;
  const Turn turn;
  Turn::AtEnd([&] { said += "a"; });
  // A task that waits in turn for what another one puts off.
  scheduler->Schedule([&] {
    const Turn inner;
    Turn::AtEnd([&] { said += "b"; });
  });
  scheduler->HelpUntil([&] { return said == "ab"; });
  EXPECT_EQ(said, "ab");
  Turn::AtEnd([&] { said += "c"; });
  EXPECT_EQ(said, "ab");
}

}  // namespace
}  // namespace muster
