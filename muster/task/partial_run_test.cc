#include "muster/task/partial_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/graph/build/graph_test_util.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

TEST(PartialRunTest, PartsAreTakenOnce) {
  PartialRun run({"a:0", "b:0"}, {"x:0", "y:0"}, {{0}, {0, 1}});
  EXPECT_EQ(run.Take({"q:0"}, {}),
            InvalidArgument("The feed q:0 was not specified in partial_run_setup."));
  EXPECT_EQ(run.Take({}, {"q:0"}),
            InvalidArgument("The fetch q:0 was not specified in partial_run_setup."));
  EXPECT_EQ(run.Take({"a:0", "a:0"}, {}), InvalidArgument("The feed a:0 has already been fed."));
  // The refused feed does not count as fed.
  EXPECT_EQ(run.Take({"a:0"}, {"x:0", "x:0"}), absl::OkStatus());
  EXPECT_EQ(run.Take({"a:0"}, {}), InvalidArgument("The feed a:0 has already been fed."));
  EXPECT_EQ(run.Take({}, {"x:0"}), InvalidArgument("The fetch x:0 has already been fetched."));
  EXPECT_FALSE(run.is_over());
  EXPECT_EQ(run.Take({"b:0"}, {"y:0"}), absl::OkStatus());
  EXPECT_TRUE(run.is_over());
}

TEST(PartialRunTest, AFetchWaitsForItsFeeds) {
  PartialRun run({"a:0", "b:0"}, {"y:0"}, {{0, 1}});
  const absl::Status early =
      InvalidArgument("Fetch b:0 can't be computed from the feeds that have been fed so far.");
  EXPECT_EQ(run.Take({"a:0"}, {"y:0"}), early);
  EXPECT_EQ(run.Take({"a:0"}, {}), absl::OkStatus()) << "the part that was refused fed nothing";
  EXPECT_EQ(run.Take({}, {"y:0"}), early);
  EXPECT_EQ(run.Take({"b:0"}, {"y:0"}), absl::OkStatus());
}

TEST(PartialRunTest, WhatIsAnnouncedTwiceIsFetchedOnce) {
  PartialRun run({}, {"x:0", "x:0"}, {{}, {}});
  EXPECT_EQ(run.Take({}, {"x:0"}), absl::OkStatus());
  EXPECT_TRUE(run.is_over());
}

TEST(FeedsBehindTest, FollowsInputsUpToTheFeeds) {
  Graph graph;
  const Scope s(graph);
  const Output a = Placeholder(s, "a", DType::kFloat, PartialShape());
  const Output b = Placeholder(s, "b", DType::kFloat, PartialShape());
  const Output inner = s.Op("Neg", {a}, {}, "inner");
  const Output sum = s.Op("Add", {inner, b}, {}, "sum");
  const Output alone = s.ConstScalar<float>(1);
  EXPECT_THAT(FeedsBehind({a, b}, {inner, sum, alone, a}),
              ElementsAre(ElementsAre(0), UnorderedElementsAre(0, 1), IsEmpty(), ElementsAre(0)));
  // A fed tensor hides the nodes before it.
  EXPECT_THAT(FeedsBehind({inner, b}, {sum}), ElementsAre(UnorderedElementsAre(0, 1)));
}

}  // namespace
}  // namespace muster
