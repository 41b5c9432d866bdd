#include "muster/worker/reply_cache.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

TEST(ReplyCacheTest, RepliesThatComeAfterTheirStepAreNotKept) {
  ReplyCache cache;
  int answers = 0;
  const auto done = [&](absl::StatusOr<RecvTensorReply>) { ++answers; };
  ASSERT_TRUE(cache.Begin(1, 7, done));
  cache.ForgetStep(7);
  cache.Finish(1, absl::CancelledError("the step has ended"));
  EXPECT_EQ(answers, 1);
  // As if it had never been asked.
  EXPECT_TRUE(cache.Begin(1, 8, done));
  cache.Finish(1, RecvTensorReply());
  EXPECT_FALSE(cache.Begin(1, 8, done));
  EXPECT_EQ(answers, 3);
}

}  // namespace
}  // namespace muster
