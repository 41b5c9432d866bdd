#include "muster/train/events/timeline.h"

#include "tensorflow/core/framework/step_stats.pb.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/base/json.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TimelineTest : public ::testing::Test {
 protected:
  tensorflow::NodeExecStats* Add(const std::string& label, int64_t start, int64_t duration,
                                 int64_t bytes = 0) {
    if (stats_.dev_stats_size() == 0) stats_.add_dev_stats()->set_device("/device:CPU:0");
    tensorflow::NodeExecStats* node = stats_.mutable_dev_stats(0)->add_node_stats();
    node->set_node_name(label.substr(0, label.find(' ')));
    node->set_timeline_label(label);
    node->set_all_start_micros(start);
    node->set_all_end_rel_micros(duration);
    if (bytes > 0) {
      auto* described = node->add_output()->mutable_tensor_description();
      described->mutable_allocation_description()->set_requested_bytes(bytes);
    }
    return node;
  }
  Timeline Make(const TimelineOptions& options) {
    absl::StatusOr<Timeline> made = MakeTimeline(stats_.SerializeAsString(), options);
    EXPECT_TRUE(made.ok()) << made.status();
    EXPECT_TRUE(Json::Parse(made->json).ok()) << made->json;
    return *std::move(made);
  }

  tensorflow::StepStats stats_;
};

TEST_F(TimelineTest, ExecutionsThatOverlapAreInDifferentRows) {
  Add("b = MatMul(a:0, ^c)", 10, 20);
  Add("a = Const()", 0, 15);
  const std::string json = Make({.show_dataflow = false}).json;
  EXPECT_THAT(json, HasSubstr(R"("name":"Const","pid":1,"tid":0,"ts":0,"dur":15)"));
  EXPECT_THAT(json, HasSubstr(R"("name":"MatMul","pid":1,"tid":1,"ts":10,"dur":20)"));
  EXPECT_THAT(json, HasSubstr(R"("op":"MatMul","input0":"a:0","input1":"^c"})"));
}

TEST_F(TimelineTest, WhatACardDidIsBesideTheNodes) {
  Add("a = Const()", 0, 15);
  Add("b = Neg(a:0)", 10, 20);
  auto* stream = stats_.add_dev_stats();
  stream->set_device("/device:GPU:0/stream:all");
  for (const char* name : {"a:Const", "b:Neg", "odd"}) {
    auto* node = stream->add_node_stats();
    node->set_node_name(name);
    node->set_timeline_label("math/unary.cu: Unary<Neg, float> grid:1,1,1 block:256,1,1");
    node->set_all_start_micros(12);
    node->set_all_end_rel_micros(3);
  }
  const std::string json = Make({}).json;
  EXPECT_THAT(json, HasSubstr(R"("args":{"name":"b","op":"Neg"})"));
  EXPECT_THAT(json, HasSubstr(R"("args":{"name":"odd","op":"unknown"})"));
  // Arrows are between nodes.
  EXPECT_THAT(
      json, HasSubstr(R"({"ph":"s","cat":"DataFlow","name":"a","pid":1,"tid":0,"ts":15,"id":0})"));
}

TEST_F(TimelineTest, ArrowsGoFromRowToRow) {
  Add("a = Const()", 0, 15);
  Add("b = Neg(a:0)", 10, 20);
  Add("c = Neg(b:0)", 30, 5);  // in the row of a, from that of b
  const std::string json = Make({}).json;
  EXPECT_THAT(
      json, HasSubstr(R"({"ph":"s","cat":"DataFlow","name":"a","pid":1,"tid":0,"ts":15,"id":0})"));
  EXPECT_THAT(
      json, HasSubstr(R"({"ph":"t","cat":"DataFlow","name":"a","pid":1,"tid":1,"ts":10,"id":0})"));
  EXPECT_THAT(json, HasSubstr(R"("name":"b","pid":1,"tid":1,"ts":30,"id":1})"));
}

TEST_F(TimelineTest, MemoryIsHeldUntilTheLastUse) {
  Add("a = Const()", 0, 1, 100);
  Add("b = Const()", 2, 1, 30);
  Add("c = Neg(a)", 4, 6, 8);
  Add("d = Neg(b)", 20, 1);
  const Timeline made = Make({.show_memory = true});
  ASSERT_EQ(made.maximums.count("cpu"), 1u);
  const AllocationMaximum& most = made.maximums.at("cpu");
  EXPECT_EQ(most.num_bytes, 138);  // c is there before a goes
  EXPECT_EQ(most.micros, 10);
  EXPECT_THAT(most.tensors, ElementsAre("a", "b", "c"));
  EXPECT_THAT(
      made.json,
      HasSubstr(
          R"({"ph":"C","cat":"Memory","name":"cpu","pid":0,"tid":0,"ts":21,"args":{"cpu":0}})"));
  EXPECT_THAT(made.json,
              HasSubstr(R"({"ph":"D","cat":"Tensor","name":"b","pid":2,"tid":0,"ts":21)"));
}

TEST_F(TimelineTest, KernelsOnlyLeavesOutTheRuntime) {
  tensorflow::NodeExecStats* node = Add("a = Const()", 100, 10);
  node->set_op_start_rel_micros(2);
  node->set_op_end_rel_micros(7);
  EXPECT_THAT(Make({.kernels_only = true}).json, HasSubstr(R"("ts":102,"dur":5)"));
}

TEST_F(TimelineTest, LabelsOfOtherRuntimesAreNames) {
  Add("x/MEMCPY", 0, 1)->set_node_name("x/MEMCPY");
  EXPECT_THAT(Make({}).json, HasSubstr(R"("name":"MEMCPY")"));
  EXPECT_EQ(MakeTimeline("", {})->json, R"({"traceEvents":[]})");
  EXPECT_EQ(MakeTimeline("no message", {}).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace muster
