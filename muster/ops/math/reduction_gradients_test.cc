#include "muster/ops/math/reduction_gradients.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "muster/graph/build/scope.h"
#include "muster/graph/graph.h"

namespace muster {
namespace {

using testing::ElementsAre;

// "name op" of the nodes that the gradient of `op(x, axes)` makes, in order.
std::vector<std::string> NodesOf(Graph& graph, const char* op, PartialShape shape,
                                 std::vector<int32_t> axes,
                                 absl::Status (*differentiate)(GradientContext&),
                                 bool keep_dims = false) {
  const Scope root(graph);
  const Output x =
      root.Op("Placeholder", {}, {{"dtype", DType::kFloat}, {"shape", std::move(shape)}}, "x");
  const Output y = root.Op(op, {x, root.ConstVector(axes)}, {{"keep_dims", keep_dims}}, "y");
  const Output dy =
      root.Op("Placeholder", {}, {{"dtype", DType::kFloat}, {"shape", y.shape()}}, "dy");
  EXPECT_TRUE(root.status().ok()) << root.status();
  const int first = graph.num_nodes();
  const Scope scope = root.NameScope("g");
  GradientContext g(*y.node, {dy}, scope);
  const absl::Status status = differentiate(g);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(scope.status().ok()) << scope.status();
  std::vector<std::string> names;
  for (int i = first; i < graph.num_nodes(); ++i) {
    const Node& node = *graph.nodes()[i];
    names.push_back(absl::StrCat(absl::StripPrefix(node.name(), scope.prefix()), " ", node.op()));
  }
  return names;
}

TEST(SumGradientTest, OfEverythingIsATile) {
  Graph graph;
  EXPECT_THAT(NodesOf(graph, "Sum", {2, 3}, {0, 1}, DifferentiateSum),
              ElementsAre("Reshape/shape Const", "Reshape Reshape", "Const Const", "Tile Tile"));
  EXPECT_THAT(NodesOf(graph, "Sum", {-1, 3}, {0, 1}, DifferentiateSum),
              ElementsAre("Reshape/shape Const", "Reshape Reshape", "Shape Shape", "Tile Tile"));
}

TEST(SumGradientTest, OfAKnownShapeEmitsItsConstantsOnce) {
  Graph graph;
  EXPECT_THAT(
      NodesOf(graph, "Sum", {2, 3}, {1}, DifferentiateSum),
      ElementsAre("Cast/x Const", "Cast_1/x Const", "Size Const", "add AddV2", "mod FloorMod",
                  "Shape Const", "range/start Const", "range/delta Const", "range Range",
                  "Fill/value Const", "Fill Fill", "DynamicStitch DynamicStitch", "Maximum/x Const",
                  "Maximum/y Const", "Maximum Maximum", "floordiv/x Const", "floordiv FloorDiv",
                  "Reshape/shape Const", "Reshape Reshape", "Tile/multiples Const", "Tile Tile"));
  EXPECT_THAT(
      NodesOf(graph, "Sum", {2, 3}, {1}, DifferentiateSum),
      ElementsAre("Reshape/shape Const", "Reshape Reshape", "Tile/multiples Const", "Tile Tile"));
}

TEST(MeanGradientTest, OfAnOpenShapeCountsAtRunTime) {
  Graph graph;
  EXPECT_THAT(NodesOf(graph, "Mean", {-1, 3}, {0, 1}, DifferentiateMean),
              ElementsAre("Reshape/shape Const", "Reshape Reshape", "Shape Shape", "Tile Tile",
                          "Shape_1 Shape", "Shape_2 Const", "Const Const", "Prod Prod",
                          "Const_1 Const", "Prod_1 Prod", "Maximum/y Const", "Maximum Maximum",
                          "floordiv FloorDiv", "Cast Cast", "truediv RealDiv"));
}

TEST(MaxGradientTest, SharesAmongEqualElements) {
  Graph graph;
  EXPECT_THAT(NodesOf(graph, "Max", {-1, 3}, {1}, DifferentiateExtreme),
              ElementsAre("Shape Shape", "Size Const", "add AddV2", "mod FloorMod", "Shape_1 Const",
                          "range/start Const", "range/delta Const", "range Range",
                          "Fill/value Const", "Fill Fill", "DynamicStitch DynamicStitch",
                          "Reshape Reshape", "Reshape_1 Reshape", "Equal Equal", "Cast Cast",
                          "Sum Sum", "Reshape_2 Reshape", "truediv RealDiv", "mul Mul"));
}

TEST(ProdGradientTest, MultipliesTheOthers) {
  Graph graph;
  EXPECT_THAT(
      NodesOf(graph, "Prod", {-1, 3}, {1}, DifferentiateProd),
      ElementsAre(
          "Shape Shape", "Reshape/shape Const", "Reshape Reshape", "Size Const", "add AddV2",
          "mod FloorMod", "Shape_1 Const", "range/start Const", "range/delta Const", "range Range",
          "Fill/value Const", "Fill Fill", "DynamicStitch DynamicStitch", "Maximum/y Const",
          "Maximum Maximum", "floordiv FloorDiv", "Reshape_1 Reshape", "Tile Tile", "Rank Const",
          "add_1 AddV2", "mod_1 FloorMod", "range_1/start Const", "range_1/delta Const",
          "range_1 Range", "ListDiff ListDiff", "concat/axis Const", "concat ConcatV2",
          "GatherV2/axis Const", "GatherV2 GatherV2", "Const Const", "Prod Prod",
          "GatherV2_1/axis Const", "GatherV2_1 GatherV2", "Const_1 Const", "Prod_1 Prod",
          "transpose Transpose", "Shape_2 Shape", "Reshape_2/shape Pack", "Reshape_2 Reshape",
          "Cumprod/axis Const", "Cumprod Cumprod", "Cumprod_1/axis Const", "Cumprod_1 Cumprod",
          "mul Mul", "Reshape_3 Reshape", "InvertPermutation InvertPermutation",
          "transpose_1 Transpose", "mul_1 Mul", "Reshape_4 Reshape"));
}

}  // namespace
}  // namespace muster
