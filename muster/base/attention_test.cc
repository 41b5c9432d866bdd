#include "muster/base/attention.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

TEST(AttentionTest, IsLetGoOnce) {
  EXPECT_FALSE(Attention::IsHeld());
  Attention::LetGo();
  int outer_gone = 0;
  int inner_gone = 0;
  const auto let_outer_go = [&] { ++outer_gone; };
  const auto let_inner_go = [&] { ++inner_gone; };
  Attention outer(let_outer_go);
  {
    Attention inner(let_inner_go);
    EXPECT_TRUE(Attention::IsHeld());
    Attention::LetGo();
    Attention::LetGo();
    EXPECT_TRUE(inner.has_let_go());
  }
  EXPECT_TRUE(outer.has_let_go());
  EXPECT_EQ(outer_gone, 1);
  EXPECT_EQ(inner_gone, 1);
  outer.TakeBack();
  Attention::LetGo();
  EXPECT_EQ(outer_gone, 2);
}

TEST(AttentionTest, KeepsUntilItIsToldOtherwise) {
  auto kept = std::make_shared<int>(1);
  EXPECT_FALSE(Attention::Keep(kept));
  const auto nothing = [] {};
  {
    Attention attention(nothing);
    EXPECT_TRUE(Attention::Keep(kept));
    EXPECT_EQ(kept.use_count(), 2);
    attention.DropKept();
    EXPECT_EQ(kept.use_count(), 1);
    EXPECT_TRUE(Attention::Keep(kept));
  }
  EXPECT_EQ(kept.use_count(), 1);
}

}  // namespace
}  // namespace muster
