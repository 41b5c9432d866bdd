#include "muster/graph/rewrite/passes_test_util.h"

namespace muster {
namespace {

using ::testing::ElementsAre;

using MergeCommonTest = PassTest;

TEST_F(MergeCommonTest, TheSameFromTheSame) {
  const Output x = Floats("x", {2});
  const Output one = scope_.Op("Exp", {scope_.Op("Neg", {x}, {}, "a")}, {}, "b");
  const Output two = scope_.Op("Exp", {scope_.Op("Neg", {x}, {}, "c")}, {}, "d");
  Rewrite(MergeCommonNodes, {x}, {scope_.Op("Sub", {one, two}, {}, "e")});
  EXPECT_THAT(List(),
              ElementsAre("a Neg _arg_x_0_0", "b Exp a", "e Sub b,b", "_retval_e_0_0 _Retval e"));
}

TEST_F(MergeCommonTest, OperandsInEitherOrderWhereTheOpAllows) {
  const Output x = Floats("x", {2});
  const Output y = Floats("y", {2});
  const Output one = scope_.Op("Mul", {x, y}, {}, "m1");
  const Output two = scope_.Op("Mul", {y, x}, {}, "m2");
  const Output three = scope_.Op("Sub", {x, y}, {}, "s1");
  const Output four = scope_.Op("Sub", {y, x}, {}, "s2");
  Rewrite(MergeCommonNodes, {x, y}, {one, two, three, four});
  EXPECT_EQ(Find("m2"), nullptr);
  EXPECT_NE(Find("s2"), nullptr);
}

TEST_F(MergeCommonTest, ConstantsByValue) {
  const auto constant = [&](float value, absl::string_view name) {
    return scope_.ConstScalar<float>(value, name);
  };
  const Output x = Floats("x", {2});
  std::vector<Output> fetches;
  for (const Output& c : {constant(1, "a"), constant(1, "b"), constant(2, "c"), constant(0, "d"),
                          constant(-0.0f, "e")}) {
    fetches.push_back(scope_.Op("AddV2", {x, c}));
  }
  Rewrite(MergeCommonNodes, {x}, fetches);
  EXPECT_EQ(Find("b"), nullptr);
  EXPECT_NE(Find("c"), nullptr);
  EXPECT_NE(Find("d"), nullptr);
  EXPECT_NE(Find("e"), nullptr);
}

TEST_F(MergeCommonTest, AttributesDevicesAndWaitingTellApart) {
  const Output x = Floats("x", {2, 2});
  const Output gate = scope_.Op("Exp", {x}, {}, "gate");
  const std::vector<Output> fetches = {
      scope_.Op("MatMul", {x, x}, {}, "plain"),
      scope_.Op("MatMul", {x, x}, {{"transpose_a", true}}, "transposed"),
      scope_.WithDevice("/cpu:1").Op("MatMul", {x, x}, {}, "elsewhere"),
      scope_.WithControlDependencies(std::vector<Node*>{gate.node})
          .Op("MatMul", {x, x}, {}, "later"),
      scope_.ColocatedWith(*gate.node).Op("MatMul", {x, x}, {}, "colocated")};
  Rewrite(MergeCommonNodes, {x}, fetches);
  EXPECT_NE(Find("transposed"), nullptr);
  EXPECT_NE(Find("elsewhere"), nullptr);
  EXPECT_NE(Find("later"), nullptr);
  // Where nodes go has been decided by the time the graph is rewritten.
  EXPECT_EQ(Find("colocated"), nullptr);
}

TEST_F(MergeCommonTest, EffectsAndReadsOfStateStay) {
  const Output shape = scope_.ConstVector({2}, "shape");
  const AttrMap attrs = {{"dtype", DType::kFloat}};
  const Output v =
      scope_.Op("VariableV2", {}, {{"dtype", DType::kFloat}, {"shape", PartialShape({2})}}, "v");
  Rewrite(MergeCommonNodes, {},
          {scope_.Op("RandomUniform", {shape}, attrs, "r1"),
           scope_.Op("RandomUniform", {shape}, attrs, "r2"), scope_.Op("Identity", {v}, {}, "i1"),
           scope_.Op("Identity", {v}, {}, "i2")});
  for (absl::string_view name : {"r1", "r2", "i1", "i2"}) EXPECT_NE(Find(name), nullptr) << name;
}

}  // namespace
}  // namespace muster
