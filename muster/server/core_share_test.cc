#include "muster/server/core_share.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

TEST(CoreShareTest, TasksOfOneJobOnOneMachineShareIt) {
  const auto cluster = ClusterSpec::Parse("ps=a:1;worker=a:2,a:3,a:4,b:2;eval=c:1");
  ASSERT_EQ(cluster.status(), absl::OkStatus());
  EXPECT_EQ(CoreShare(*cluster, {"ps", 0}, 8), 8);
  EXPECT_EQ(CoreShare(*cluster, {"worker", 0}, 8), 2);
  EXPECT_EQ(CoreShare(*cluster, {"worker", 2}, 2), 1);
  EXPECT_EQ(CoreShare(*cluster, {"worker", 3}, 8), 8);
  EXPECT_EQ(CoreShare(*cluster, {"eval", 0}, 1), 1);
  EXPECT_EQ(CoreShare(*cluster, {"other", 0}, 4), 4);
  EXPECT_EQ(CoreShare(*cluster, {"worker", 9}, 4), 4);
}

}  // namespace
}  // namespace muster
