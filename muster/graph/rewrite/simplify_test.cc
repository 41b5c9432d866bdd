#include "muster/graph/rewrite/passes_test_util.h"

namespace muster {
namespace {

using ::testing::ElementsAre;

class SimplifyTest : public PassTest {
 protected:
  // Whether `y`, made from `x`, is seen to be `x`.
  bool IsPassedBy(Output x, Output y) {
    Rewrite(Simplify, {x}, {scope_.Op("Neg", {y}, {}, "reader")});
    return step_ != nullptr && Find(y.node->name()) == nullptr;
  }
};

TEST_F(SimplifyTest, ChainsOfIdentitiesGo) {
  const Output x = Floats("x", {2});
  const Output a = scope_.Op("Identity", {x}, {}, "a");
  const Output b = scope_.Op("StopGradient", {a}, {}, "b");
  const Output c = scope_.Op("PreventGradient", {b}, {}, "c");
  Rewrite(Simplify, {x}, {c});
  EXPECT_THAT(List(), ElementsAre("_retval_c_0_0 _Retval _arg_x_0_0"));
}

TEST_F(SimplifyTest, WhatIsSentStays) {
  const Output x = Floats("x", {2});
  const Output sent = scope_.Op("Identity", {x}, {}, "sent");
  Node* send = scope_.Add("_Send", {sent},
                          {{"tensor_name", std::string("e")},
                           {"send_device", std::string("/job:a/task:0/device:CPU:0")},
                           {"recv_device", std::string("/job:b/task:0/device:CPU:0")},
                           {"send_device_incarnation", int64_t{1}}},
                          "send");
  Rewrite(Simplify, {x}, {scope_.Op("Neg", {sent}, {}, "y")}, {send});
  EXPECT_NE(Find("sent"), nullptr);
}

TEST_F(SimplifyTest, IdentitiesThatReadReferencesOrWaitStay) {
  const Output v =
      scope_.Op("VariableV2", {}, {{"dtype", DType::kFloat}, {"shape", PartialShape({2})}}, "v");
  const Output read = scope_.Op("Identity", {v}, {}, "read");
  const Output x = Floats("x", {2});
  const Output held =
      scope_.WithControlDependencies(std::vector<Node*>{read.node}).Op("Identity", {x}, {}, "held");
  Rewrite(Simplify, {x}, {held, scope_.Op("Identity", {read}, {}, "again")});
  EXPECT_THAT(List(),
              ElementsAre("v VariableV2", "read Identity v", "held Identity _arg_x_0_0,^read",
                          "_retval_held_0_0 _Retval held", "_retval_again_0_1 _Retval read"));
}

TEST_F(SimplifyTest, PivotsOfBranchesStay) {
  const Output p = Placeholder(scope_, "p", DType::kBool, PartialShape::Scalar());
  Node* choice = scope_.Add("Switch", {p, p}, {}, "switch");
  const Output pivot = scope_.Op("Identity", {Output(choice, 1)}, {}, "pivot");
  const Output inside = scope_.WithControlDependencies(std::vector<Node*>{pivot.node})
                            .ConstScalar<float>(1, "inside");
  const Output other = scope_.Op("Identity", {Output(choice, 0)}, {}, "other");
  Rewrite(Simplify, {p},
          {scope_.Op("Neg", {inside}, {}, "n"), scope_.Op("LogicalNot", {other}, {}, "not")});
  EXPECT_NE(Find("pivot"), nullptr);
  EXPECT_EQ(Find("other"), nullptr);
}

TEST_F(SimplifyTest, WaitingIsShortenedWhereItIsNotMore) {
  const Output x = Floats("x", {2});
  const Output a = scope_.Op("CheckNumerics", {x}, {{"message", ""}}, "a");
  const Output b = scope_.Op("CheckNumerics", {x}, {{"message", ""}}, "b");
  const auto after = [&](std::vector<Node*> nodes) {
    return scope_.WithControlDependencies(nodes);
  };
  Node* inner = after({a.node, b.node}).Add("NoOp", {}, {}, "inner");
  const Output constant = after({inner}).ConstScalar<float>(1, "constant");
  Node* outer = after({constant.node}).Add("NoOp", {}, {}, "outer");
  Rewrite(Simplify, {x}, {}, {outer});
  EXPECT_THAT(List(), ElementsAre("a CheckNumerics _arg_x_0_0", "b CheckNumerics _arg_x_0_0",
                                  "outer NoOp ^a,^b"));
  // Two times three edges are more than two plus three.
  const Output one = after({inner}).Op("Neg", {x}, {}, "one");
  const Output two = after({inner}).Op("Neg", {x}, {}, "two");
  const Output three = after({inner}).Op("Neg", {x}, {}, "three");
  Rewrite(Simplify, {x}, {one, two, three});
  EXPECT_NE(Find("inner"), nullptr);
}

TEST_F(SimplifyTest, WhatNobodyReadsIsNotComputedForAGate) {
  const Output x = Floats("x", {2});
  const Output unread = scope_.Op("Exp", {scope_.Op("Neg", {x}, {}, "neg")}, {}, "unread");
  const Output checked = scope_.Op("CheckNumerics", {x}, {{"message", ""}}, "checked");
  Node* gate = scope_.WithControlDependencies(std::vector<Node*>{unread.node, checked.node})
                   .Add("NoOp", {}, {}, "gate");
  Rewrite(Simplify, {x}, {}, {gate});
  EXPECT_EQ(Find("unread"), nullptr);
  EXPECT_EQ(Find("neg"), nullptr);
  EXPECT_NE(Find("checked"), nullptr);  // it may fail the step: an effect
}

TEST_F(SimplifyTest, ReshapeToTheSameShape) {
  const Output x = Floats("x", {2, 3});
  const Output open = Floats("open", {-1, 3});
  const auto reshape = [&](Output t, std::vector<int32_t> dims) {
    return scope_.Op("Reshape", {t, scope_.ConstVector(dims, "dims")}, {}, "reshape");
  };
  EXPECT_TRUE(IsPassedBy(x, reshape(x, {2, 3})));
  EXPECT_TRUE(IsPassedBy(x, reshape(x, {-1, 3})));
  EXPECT_FALSE(IsPassedBy(x, reshape(x, {3, 2})));
  EXPECT_FALSE(IsPassedBy(x, reshape(x, {6})));
  EXPECT_TRUE(IsPassedBy(open, reshape(open, {-1, 3})));
  EXPECT_FALSE(IsPassedBy(open, reshape(open, {2, 3})));
}

TEST_F(SimplifyTest, TransposesSumsCastsAndListsOfOne) {
  const Output x = Floats("x", {2, 3});
  const auto with = [&](absl::string_view op, std::vector<int32_t> values) {
    return scope_.Op(op, {x, scope_.ConstVector(values, "values")}, {}, "y");
  };
  EXPECT_TRUE(IsPassedBy(x, with("Transpose", {0, 1})));
  EXPECT_FALSE(IsPassedBy(x, with("Transpose", {1, 0})));
  EXPECT_TRUE(IsPassedBy(x, with("Sum", {})));
  EXPECT_FALSE(IsPassedBy(x, with("Sum", {0})));
  EXPECT_TRUE(IsPassedBy(x, scope_.Op("Cast", {x}, {{"DstT", DType::kFloat}}, "y")));
  EXPECT_TRUE(IsPassedBy(x, scope_.Op("AddN", {std::vector<Output>{x}}, {}, "y")));
  EXPECT_FALSE(IsPassedBy(x, scope_.Op("AddN", {std::vector<Output>{x, x}}, {}, "y")));
}

TEST_F(SimplifyTest, ArithmeticOnlyWhereEveryBitStays) {
  const Output i = Placeholder(scope_, "i", DType::kInt32, {2});
  const auto number = [&](int32_t value) { return scope_.ConstScalar<int32_t>(value, "c"); };
  EXPECT_TRUE(IsPassedBy(i, scope_.Op("Mul", {i, number(1)}, {}, "y")));
  EXPECT_TRUE(IsPassedBy(i, scope_.Op("Mul", {number(1), i}, {}, "y")));
  EXPECT_FALSE(IsPassedBy(i, scope_.Op("Mul", {i, number(2)}, {}, "y")));
  EXPECT_TRUE(IsPassedBy(i, scope_.Op("FloorDiv", {i, number(1)}, {}, "y")));
  EXPECT_FALSE(IsPassedBy(i, scope_.Op("FloorDiv", {number(1), i}, {}, "y")));
  EXPECT_TRUE(IsPassedBy(i, scope_.Op("AddV2", {i, number(0)}, {}, "y")));
  EXPECT_TRUE(IsPassedBy(i, scope_.Op("Sub", {i, number(0)}, {}, "y")));
  EXPECT_FALSE(IsPassedBy(i, scope_.Op("Sub", {number(0), i}, {}, "y")));
  // -0 + 0 is 0, and a denormal times one is zero.
  const Output x = Floats("x", {2});
  EXPECT_FALSE(IsPassedBy(x, scope_.Op("AddV2", {x, scope_.ConstScalar<float>(0)}, {}, "y")));
  EXPECT_FALSE(IsPassedBy(x, scope_.Op("Mul", {x, scope_.ConstScalar<float>(1)}, {}, "y")));
  // Ones that enlarge the result by broadcasting must stay.
  const Output ones = scope_.Const(Tensor::Of<int32_t>(Shape({2, 2}), {1, 1, 1, 1}), "ones");
  EXPECT_FALSE(IsPassedBy(i, scope_.Op("Mul", {i, ones}, {}, "y")));
}

}  // namespace
}  // namespace muster
