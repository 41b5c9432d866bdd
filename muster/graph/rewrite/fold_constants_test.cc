#include "muster/graph/evaluator.h"
#include "muster/graph/rewrite/passes_test_util.h"

namespace muster {
namespace {

using ::testing::ElementsAre;

class FoldConstantsTest : public PassTest {
 protected:
  std::vector<float> ConstFloats(absl::string_view name) const {
    const Tensor* value = Find(name) == nullptr ? nullptr : ConstValue(*Find(name));
    return value == nullptr
               ? std::vector<float>{}
               : std::vector<float>(value->values<float>().begin(), value->values<float>().end());
  }
};

TEST_F(FoldConstantsTest, ComputesWhatFollowsFromConstants) {
  const Output a = scope_.Const(Tensor::Vector<float>({1, 2}), "a");
  const Output b = scope_.Op("Square", {scope_.Op("Neg", {a}, {}, "neg")}, {}, "b");
  const Output x = Floats("x", {2});
  Rewrite(FoldConstants, {x}, {scope_.Op("AddV2", {x, b}, {}, "c")});
  EXPECT_THAT(List(), ElementsAre("b Const", "c AddV2 _arg_x_0_0,b", "_retval_c_0_0 _Retval c"));
  EXPECT_THAT(ConstFloats("b"), ElementsAre(1, 4));
}

TEST_F(FoldConstantsTest, ConstantsKeepWhatTheyWaitFor) {
  const Output x = Floats("x", {2});
  const Output gate = scope_.Op("Exp", {x}, {}, "gate");
  const Output other = scope_.Op("Log", {x}, {}, "other");
  const Output a =
      scope_.WithControlDependencies(std::vector<Node*>{gate.node}).ConstScalar<float>(3, "a");
  const Output b =
      scope_.WithControlDependencies(std::vector<Node*>{other.node}).Op("Neg", {a}, {}, "b");
  Rewrite(FoldConstants, {x}, {b});
  EXPECT_THAT(List(), ElementsAre("gate Exp _arg_x_0_0", "other Log _arg_x_0_0",
                                  "b Const ^other,^gate", "_retval_b_0_0 _Retval b"));
}

TEST_F(FoldConstantsTest, ShapesWaitForTheirTensor) {
  const Output x = Floats("x", {2, 3});
  const Output y = scope_.Op("Exp", {x}, {}, "y");
  const Output shape = scope_.Op("Shape", {y}, {}, "shape");
  const Output size =
      scope_.Op("Prod", {shape, scope_.ConstScalar<int32_t>(0, "axis")}, {}, "size");
  Rewrite(FoldConstants, {x}, {size});
  EXPECT_THAT(List(),
              ElementsAre("y Exp _arg_x_0_0", "size Const ^y", "_retval_size_0_0 _Retval size"));
  EXPECT_EQ(ConstValue(*Find("size"))->scalar<int32_t>(), 6);
}

TEST_F(FoldConstantsTest, UnknownShapesStay) {
  const Output x = Floats("x", {-1, 3});
  const Output shape = scope_.Op("Shape", {x}, {}, "shape");
  const Output rank = scope_.Op("Rank", {x}, {}, "rank");
  Rewrite(FoldConstants, {x}, {shape, rank});
  EXPECT_EQ(Find("shape")->op(), "Shape");
  EXPECT_EQ(Find("rank")->op(), "Const");
}

TEST_F(FoldConstantsTest, EachReadOutputBecomesAConstant) {
  const Output a = scope_.ConstVector({2, 1}, "a");
  const Output b = scope_.ConstVector({2, 3}, "b");
  Node* args = scope_.Add("BroadcastGradientArgs", {a, b}, {}, "args");
  Rewrite(FoldConstants, {}, {scope_.Op("Neg", {Output(args, 0)}, {}, "n"), Output(args, 1)});
  EXPECT_THAT(List(), ElementsAre("args/output_1 Const", "n Const", "_retval_n_0_0 _Retval n",
                                  "_retval_args_1_1 _Retval args/output_1"));
}

TEST_F(FoldConstantsTest, LeavesEffectsErrorsAndLargeResultsAlone) {
  const Output dims = scope_.ConstVector({3000, 3000}, "dims");
  const Output fill = scope_.Op("Fill", {dims, scope_.ConstScalar<float>(1, "one")}, {}, "fill");
  const Output random = scope_.Op("RandomUniform", {scope_.ConstVector({2}, "two")},
                                  {{"dtype", DType::kFloat}}, "random");
  const Output zero = scope_.ConstScalar<int32_t>(0, "zero");
  const Output quotient =
      scope_.Op("FloorDiv", {scope_.ConstScalar<int32_t>(1, "i"), zero}, {}, "quotient");
  const Output checked = scope_.Op("CheckNumerics", {scope_.ConstScalar<float>(1, "f")},
                                   {{"message", "m"}}, "checked");
  Rewrite(FoldConstants, {}, {fill, random, quotient, checked});
  EXPECT_EQ(Find("fill")->op(), "Fill");
  EXPECT_EQ(Find("random")->op(), "RandomUniform");
  EXPECT_EQ(Find("quotient")->op(), "FloorDiv");
  EXPECT_EQ(Find("checked")->op(), "CheckNumerics");
}

TEST_F(FoldConstantsTest, InputsThatAreStillOpenAreNotKnown) {
  const Output x = scope_.Const(Tensor::Vector<int32_t>({2, 3}), "x");
  const Output neg = scope_.Op("Neg", {x}, {}, "neg");
  const Output shape = scope_.Op("Shape", {x}, {}, "shape");
  Graph copy;
  Node* const open = copy.AddCopy(*neg.node, "open", {Output()}, {});
  Node* const behind = copy.AddCopy(*neg.node, "behind", {Output(open, 0)}, {});
  Node* const open_shape = copy.AddCopy(*shape.node, "open_shape", {Output()}, {});
  EXPECT_FALSE(EvaluateConstant(Output(behind, 0)));
  EXPECT_FALSE(EvaluateConstant(Output(open_shape, 0)));
  EXPECT_FALSE(EvaluateConstant(Output()));
}

}  // namespace
}  // namespace muster
