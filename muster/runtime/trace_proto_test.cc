#include "muster/runtime/trace_proto.h"

#include "tensorflow/core/framework/graph.pb.h"
#include "tensorflow/core/framework/step_stats.pb.h"
#include <gtest/gtest.h>

#include "muster/graph/build/graph_test_util.h"

namespace muster {
namespace {

TEST(TraceProtoTest, NodesByDeviceInTheOrderOfTheirStarts) {
  auto graph = std::make_shared<Graph>();
  const Scope scope(*graph);
  const Output x = Placeholder(scope, "x", DType::kFloat, PartialShape({2}));
  const std::vector<Node*> before = {
      Placeholder(scope, "z", DType::kFloat, PartialShape({2})).node};
  scope.WithControlDependencies(before).Op("Neg", {x}, {}, "y");
  ASSERT_EQ(scope.status(), absl::OkStatus());
  VirtualClock clock;
  clock.Advance(absl::Seconds(5));
  std::vector<NodeTrace> traces(2);
  traces[0] = {"a", "y", "Neg", 2500, 3000, 5500, 7, {{0, DType::kFloat, Shape({2}), 8}}};
  traces[1] = {"a", "x", "Placeholder", 0, 1000, 1100, 7, {}};
  const std::vector<std::shared_ptr<const Graph>> graphs = {graph};
  tensorflow::StepStats stats;
  ASSERT_TRUE(stats.ParseFromString(SerializeStepStats(traces, graphs, clock)));
  ASSERT_EQ(stats.dev_stats_size(), 1);
  EXPECT_EQ(stats.dev_stats(0).device(), "a");
  ASSERT_EQ(stats.dev_stats(0).node_stats_size(), 2);
  const tensorflow::NodeExecStats& first = stats.dev_stats(0).node_stats(0);
  EXPECT_EQ(first.timeline_label(), "x = Placeholder()");
  EXPECT_EQ(first.op_end_rel_micros(), 1);
  EXPECT_EQ(first.memory_size(), 0);
  const tensorflow::NodeExecStats& second = stats.dev_stats(0).node_stats(1);
  EXPECT_EQ(second.node_name(), "y");
  EXPECT_EQ(second.timeline_label(), "y = Neg(x, ^z)");
  EXPECT_EQ(second.all_start_nanos(), 3000);
  EXPECT_EQ(second.scheduled_nanos(), 2500);
  EXPECT_EQ(second.op_end_rel_micros(), 3);
  EXPECT_EQ(second.thread_id(), 7u);
  ASSERT_EQ(second.output_size(), 1);
  EXPECT_EQ(second.output(0).tensor_description().shape().dim(0).size(), 2);
  EXPECT_EQ(second.memory(0).total_bytes(), 8);
  tensorflow::GraphDef proto;
  ASSERT_TRUE(proto.ParseFromString(*SerializeGraph(*graph)));
  EXPECT_EQ(proto.node_size(), 3);
}

}  // namespace
}  // namespace muster
