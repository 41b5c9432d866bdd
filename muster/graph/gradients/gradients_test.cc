#include "muster/graph/gradients/gradients.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/client/session.h"
#include "muster/graph/build/graph_test_util.h"

namespace muster {
namespace {

using ::testing::ElementsAreArray;
using Outputs = std::vector<Output>;

class GradientsTest : public ::testing::Test {
 protected:
  GradientsTest() : scope_(graph_) {}

  Output Vector(absl::string_view name, PartialShape shape = {2}) {
    return Placeholder(scope_, name, DType::kFloat, std::move(shape));
  }
  // The lines of the graph from node `first` on.
  std::vector<std::string> NodesFrom(absl::string_view first) const {
    std::vector<std::string> lines = NodeList(graph_);
    const std::string start = absl::StrCat(first, " ");
    while (!lines.empty() && lines[0].compare(0, start.size(), start) != 0)
      lines.erase(lines.begin());
    return lines;
  }
  void ExpectNodes(absl::string_view first, absl::string_view text) {
    EXPECT_EQ(scope_.status(), absl::OkStatus());
    EXPECT_THAT(NodesFrom(first), ElementsAreArray(Lines(text)));
  }

  Graph graph_;
  Scope scope_;
};

TEST_F(GradientsTest, SumsContributions) {
  const Output x = Vector("x");
  const Output product = scope_.Op("Mul", {x, x}, {}, "mul");
  const Output y = scope_.Op("AddV2", {product, x}, {}, "add");
  const auto gradients = Gradients(scope_, {y}, {x});
  ASSERT_EQ(gradients.status(), absl::OkStatus());
  ExpectNodes("gradients/Shape", R"(
gradients/Shape Const
gradients/grad_ys_0 Const
gradients/Fill Fill gradients/Shape,gradients/grad_ys_0
gradients/mul_grad/Mul Mul gradients/Fill,x
gradients/mul_grad/Mul_1 Mul gradients/Fill,x
gradients/AddN AddN gradients/Fill,gradients/mul_grad/Mul,gradients/mul_grad/Mul_1 @gradients/Fill
)");
}

TEST_F(GradientsTest, GatesGradientsOfOneNode) {
  const Output v = Placeholder(scope_, "v", DType::kFloat, PartialShape::Scalar());
  const Output y = scope_.Op("Mul", {v, v}, {}, "mul");
  GradientOptions options;
  options.gate_gradients = true;
  ASSERT_EQ(Gradients(scope_, {y}, {v}, options).status(), absl::OkStatus());
  ExpectNodes("gradients/mul_grad/Mul", R"(
gradients/mul_grad/Mul Mul gradients/Fill,v
gradients/mul_grad/Mul_1 Mul gradients/Fill,v
gradients/mul_grad/tuple/group_deps NoOp ^gradients/mul_grad/Mul,^gradients/mul_grad/Mul_1
gradients/mul_grad/tuple/control_dependency Identity gradients/mul_grad/Mul,^gradients/mul_grad/tuple/group_deps @gradients/mul_grad/Mul
gradients/mul_grad/tuple/control_dependency_1 Identity gradients/mul_grad/Mul_1,^gradients/mul_grad/tuple/group_deps @gradients/mul_grad/Mul_1
gradients/AddN AddN gradients/mul_grad/tuple/control_dependency,gradients/mul_grad/tuple/control_dependency_1 @gradients/mul_grad/Mul
)");
}

TEST_F(GradientsTest, BroadcastingOfKnownShapes) {
  const Output x = Vector("x", {2, 3});
  const Output y = WithNumber(scope_, "Sub", "sub", x, 1);
  ASSERT_EQ(Gradients(scope_, {y}, {x}).status(), absl::OkStatus());
  ExpectNodes("gradients/sub_grad/BroadcastGradientArgs/s0", R"(
gradients/sub_grad/BroadcastGradientArgs/s0 Const
gradients/sub_grad/BroadcastGradientArgs/s1 Const
gradients/sub_grad/BroadcastGradientArgs BroadcastGradientArgs gradients/sub_grad/BroadcastGradientArgs/s0,gradients/sub_grad/BroadcastGradientArgs/s1
gradients/sub_grad/Neg Neg gradients/Fill
gradients/sub_grad/Sum/reduction_indices Const
gradients/sub_grad/Sum Sum gradients/sub_grad/Neg,gradients/sub_grad/Sum/reduction_indices
gradients/sub_grad/Reshape/shape Const
gradients/sub_grad/Reshape Reshape gradients/sub_grad/Sum,gradients/sub_grad/Reshape/shape
)");
  // The same shapes again: the axes are known.
  ASSERT_EQ(Gradients(scope_, {y}, {x}).status(), absl::OkStatus());
  EXPECT_EQ(graph_.FindNode("gradients_1/sub_grad/BroadcastGradientArgs"), nullptr);
  EXPECT_NE(graph_.FindNode("gradients_1/sub_grad/Sum"), nullptr);
}

TEST_F(GradientsTest, BroadcastingOfUnknownShapes) {
  const Output x = Vector("x", {-1, 3});
  const Output zeros = EmitZeros(scope_, Shape({3}), DType::kFloat);
  const Output y = scope_.Op("Mul", {x, zeros}, {}, "mul");
  ASSERT_EQ(Gradients(scope_, {y}, {x}).status(), absl::OkStatus());
  ExpectNodes("gradients/mul_grad/Shape", R"(
gradients/mul_grad/Shape Shape x
gradients/mul_grad/Shape_1 Shape zeros
gradients/mul_grad/BroadcastGradientArgs BroadcastGradientArgs gradients/mul_grad/Shape,gradients/mul_grad/Shape_1
gradients/mul_grad/Mul Mul gradients/Fill,zeros
gradients/mul_grad/Sum Sum gradients/mul_grad/Mul,gradients/mul_grad/BroadcastGradientArgs
gradients/mul_grad/Reshape Reshape gradients/mul_grad/Sum,gradients/mul_grad/Shape
gradients/mul_grad/Mul_1 Mul x,gradients/Fill
gradients/mul_grad/Sum_1 Sum gradients/mul_grad/Mul_1,gradients/mul_grad/BroadcastGradientArgs:1
gradients/mul_grad/Reshape_1 Reshape gradients/mul_grad/Sum_1,gradients/mul_grad/Shape_1
)");
}

TEST_F(GradientsTest, SlicesAreConcatenatedOrMadeDense) {
  const Output table = Vector("table", {4, 2});
  const auto gather = [&](std::vector<int32_t> ids) {
    const Output axis = scope_.ConstScalar<int32_t>(0);
    return scope_.Op("GatherV2", {table, scope_.ConstVector(ids), axis});
  };
  const Output y = scope_.Op("AddV2", {gather({0, 1}), gather({1, 3})});
  const auto sparse = Gradients(scope_, {y}, {table});
  ASSERT_EQ(sparse.status(), absl::OkStatus());
  const auto* slices = std::get_if<IndexedSlices>(&(*sparse)[0]);
  ASSERT_NE(slices, nullptr);
  EXPECT_EQ(slices->values.node->name(), "gradients/concat");
  EXPECT_EQ(slices->indices.node->name(), "gradients/concat_1");

  // A dense contribution makes the sum dense.
  const auto mixed = Gradients(scope_, {y, scope_.Op("Neg", {table})}, {table});
  ASSERT_EQ(mixed.status(), absl::OkStatus());
  const auto* dense = std::get_if<Output>(&(*mixed)[0]);
  ASSERT_NE(dense, nullptr);
  EXPECT_EQ(dense->node->op(), "AddN");
  auto session = Session::Create(graph_);
  ASSERT_EQ(session.status(), absl::OkStatus());
  const auto values =
      (*session)->Run({{table, Tensor::Zeros(DType::kFloat, Shape({4, 2}))}}, {*dense});
  ASSERT_EQ(values.status(), absl::OkStatus());
  EXPECT_THAT((*values)[0].values<float>(),
              ElementsAreArray({0.f, 0.f, 1.f, 1.f, -1.f, -1.f, 0.f, 0.f}));
}

TEST_F(GradientsTest, UnconnectedAndIntegerInputsHaveNone) {
  const Output x = Vector("x");
  const Output other = Vector("other");
  const Output y = scope_.Op("Neg", {x});
  const auto none = Gradients(scope_, {y}, {other});
  ASSERT_EQ(none.status(), absl::OkStatus());
  EXPECT_FALSE(HasValue((*none)[0]));
  GradientOptions options;
  options.unconnected_gradients = UnconnectedGradients::kZero;
  const auto zero = Gradients(scope_, {y}, {other}, options);
  ASSERT_EQ(zero.status(), absl::OkStatus());
  EXPECT_EQ(std::get<Output>((*zero)[0]).node->name(), "zeros_like");
}

TEST_F(GradientsTest, StopGradientsAreConstants) {
  const Output x = Vector("x");
  const Output middle = scope_.Op("Tanh", {x});
  const Output y = scope_.Op("Mul", {middle, x}, {}, "mul");
  GradientOptions options;
  options.stop_gradients = {middle};
  const auto gradients = Gradients(scope_, {y}, {x}, options);
  ASSERT_EQ(gradients.status(), absl::OkStatus());
  EXPECT_EQ(std::get<Output>((*gradients)[0]).node->name(), "gradients/mul_grad/Mul_1");
}

TEST_F(GradientsTest, TreeAddsInPairs) {
  const Output x = Vector("x");
  const Output sum = scope_.Op("AddV2", {scope_.Op("Mul", {x, x}, {}, "mul"), x}, {}, "add");
  GradientOptions options;
  options.aggregation_method = AggregationMethod::kTree;
  ASSERT_EQ(Gradients(scope_, {sum}, {x}, options).status(), absl::OkStatus());
  ExpectNodes("gradients/x_gradient_sum/AddN", R"(
gradients/x_gradient_sum/AddN AddN gradients/Fill,gradients/mul_grad/Mul
gradients/x_gradient_sum/AddN_1 AddN gradients/x_gradient_sum/AddN,gradients/mul_grad/Mul_1
)");
}

TEST_F(GradientsTest, MissingFunctionsAreLookupErrors) {
  const Output x = Vector("x");
  const Output y = scope_.Op("Bitcast", {x}, {{"type", DType::kFloat}});
  const absl::Status status = Gradients(scope_, {y}, {x}).status();
  EXPECT_EQ(status.message(), "No gradient defined for operation 'Bitcast' (op type: Bitcast)");
  EXPECT_EQ(ErrorKind(status), kLookupError);
}

TEST_F(GradientsTest, RegisteredFunctionsReplaceThoseOfTheOp) {
  ASSERT_EQ(RegisterGradient("GradientsTestTwice",
                             [](GradientContext& c) {
                               c.SetDx(0, c.Op("AddV2", {c.dy(), c.dy()}));
                               return absl::OkStatus();
                             }),
            absl::OkStatus());
  EXPECT_FALSE(RegisterGradient("GradientsTestTwice", nullptr).ok());
  EXPECT_FALSE(RegisterGradient("Mul", nullptr).ok());
  const Output x = Vector("x");
  const Output y = scope_.WithAttr("_gradient_op_type", "GradientsTestTwice").Op("Neg", {x});
  const auto gradients = Gradients(scope_, {y}, {x});
  ASSERT_EQ(gradients.status(), absl::OkStatus());
  EXPECT_EQ(std::get<Output>((*gradients)[0]).node->name(), "gradients/Neg_grad/AddV2");
}

TEST_F(GradientsTest, BadArgumentsAreRefused) {
  const Output x = Vector("x");
  const Output y = scope_.Op("Neg", {x});
  GradientOptions options;
  options.grad_ys = {Gradient(), Gradient()};
  EXPECT_EQ(Gradients(scope_, {y}, {x}, options).status().message(), "Passed 2 grad_ys for 1 ys");
  options.grad_ys = {scope_.ConstScalar<bool>(true)};
  EXPECT_EQ(ErrorKind(Gradients(scope_, {y}, {x}, options).status()), kTypeError);
  EXPECT_FALSE(Gradients(scope_, {Output()}, {x}).ok());
  const Output z = Placeholder(scope_, "z", DType::kComplex64, {2});
  EXPECT_EQ(ErrorKind(Gradients(scope_, {z}, {z}).status()), kTypeError);
}

}  // namespace
}  // namespace muster
