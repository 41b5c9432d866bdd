#include "muster/graph/rewrite/step_copy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/graph/build/graph_test_util.h"
#include "muster/graph/rewrite/prune.h"

namespace muster {
namespace {

using ::testing::ElementsAre;

class StepCopyTest : public ::testing::Test {
 protected:
  Output Waiting(const Output& before, absl::string_view name) {
    return scope_.WithControlDependencies(std::vector<Node*>{before.node})
        .Op("Const", {}, {{"dtype", DType::kFloat}, {"value", Tensor::Scalar<float>(2)}}, name);
  }
  static absl::Status KeepAll(const Node&, Node&) { return absl::OkStatus(); }

  Graph graph_;
  Scope scope_{graph_};
};

// As TensorFlow: an assignment whose value is fed still happens for nodes that wait for it.
TEST_F(StepCopyTest, NodesThatAreWaitedForRunAlthoughTheyAreFed) {
  const Output x = Placeholder(scope_, "x", DType::kFloat, PartialShape({}));
  const Output changed = scope_.Op("Neg", {scope_.ConstScalar<float>(1)}, {}, "changed");
  const Output after = Waiting(changed, "after");
  const Output later = Waiting(x, "later");
  ASSERT_EQ(scope_.status(), absl::OkStatus());
  const auto pruned = PruneForStep(graph_, {{changed, x}, {after, later}, {}});
  ASSERT_EQ(pruned.status(), absl::OkStatus());
  EXPECT_THAT(NodeList(**pruned),
              ElementsAre("_arg_changed_0_0 _Arg", "_arg_x_0_1 _Arg", "Const Const",
                          "changed Neg Const", "after Const ^changed", "later Const ^_arg_x_0_1",
                          "_retval_after_0_0 _Retval after", "_retval_later_0_1 _Retval later"));
}

TEST_F(StepCopyTest, ConnectedOutputsAreReadInstead) {
  const Output x = Placeholder(scope_, "x", DType::kFloat, PartialShape({}));
  const Output y = Placeholder(scope_, "y", DType::kFloat, PartialShape({}));
  const Output result = scope_.Op("Neg", {x}, {}, "result");
  const Output source = scope_.Op("Exp", {y}, {}, "source");
  ASSERT_EQ(scope_.status(), absl::OkStatus());
  StepCopy step(graph_);
  EXPECT_TRUE(step.Connect(x, source));
  EXPECT_TRUE(step.Replace(y));
  EXPECT_FALSE(step.Replace(y));
  EXPECT_FALSE(step.Replace(x));
  EXPECT_FALSE(step.Connect(y, source));
  step.Need({result}, {});
  EXPECT_TRUE(step.IsRead(x));
  EXPECT_TRUE(step.IsRead(y)) << "by what x is connected to";
  ASSERT_EQ(step.CopyNodes(KeepAll), absl::OkStatus());
  EXPECT_FALSE(step.Mapped(x)) << "nothing stands in for it yet";
  const auto add = [&step](absl::string_view op, std::vector<Output> inputs) {
    NodeSpec spec;
    spec.op = std::string(op);
    spec.name = step.FreshName("x");
    if (inputs.empty()) spec.attrs = {{"dtype", DType::kFloat}, {"shape", PartialShape({})}};
    spec.inputs.assign(inputs.begin(), inputs.end());
    return Output(step.copy().AddNode(std::move(spec)).value(), 0);
  };
  step.SetStandIn(y, add("Placeholder", {}));
  step.SetStandIn(x, add("Identity", {step.Mapped(source)}));
  ASSERT_EQ(step.CloseGaps(), absl::OkStatus());
  EXPECT_THAT(NodeList(*step.Take()), ElementsAre("result Neg x__", "source Exp x_",
                                                  "x_ Placeholder", "x__ Identity source"));
}

}  // namespace
}  // namespace muster
