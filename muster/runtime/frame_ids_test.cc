#include "muster/runtime/frame_ids.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

TEST(FrameIds, HashesAsTensorFlowDoes) {
  EXPECT_EQ(FrameHash(""), 9328806548029283899u);
  EXPECT_EQ(FrameHash("a"), 2996632905371535868u);
  EXPECT_EQ(FrameHash("abcdefgh"), 3429851175771700306u);
  EXPECT_EQ(FrameHash("abcdefghi"), 6766191100966087061u);
}

TEST(FrameIds, FollowBothRules) {
  const FrameName root;
  EXPECT_EQ(root.id(FrameIds::kBefore23), 0u);
  EXPECT_EQ(root.id(FrameIds::kSince23), 0u);
  const FrameName loop = root.Child("while/while_context", 0);
  EXPECT_EQ(loop.id(FrameIds::kBefore23), 1496156560211570566u);
  EXPECT_EQ(loop.id(FrameIds::kSince23), 18186195969791715286u);
  const FrameName inner = loop.Child("while/inner/while_context", 3);
  EXPECT_EQ(inner.id(FrameIds::kBefore23), 15376409445110218821u);
  EXPECT_EQ(inner.id(FrameIds::kSince23), 9521409426189814226u);
}

}  // namespace
}  // namespace muster
