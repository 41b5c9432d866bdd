#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/client/session.h"
#include "muster/graph/build/graph_test_util.h"
#include "muster/graph/control_flow/cond_context.h"
#include "muster/graph/control_flow/control_flow_test_lists.h"
#include "muster/graph/control_flow/while_context.h"
#include "muster/graph/gradients/gradients.h"

namespace muster {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using Outputs = std::vector<Output>;
using Results = std::vector<BranchResult>;

class ControlFlowTest : public ::testing::Test {
 protected:
  ControlFlowTest() : scope_(graph_) {}

  // tf.while_loop(lambda i, ...: i < count, ...) whose body gets the variables after i.
  absl::StatusOr<Outputs> CountedLoop(
      const Scope& scope, int count, Outputs variables,
      const std::function<Outputs(const Scope&, const Outputs&)>& body) {
    variables.insert(variables.begin(), scope.ConstScalar<int32_t>(0));
    return WhileLoop(
        scope, std::move(variables),
        [&](const Scope& s, const Outputs& v) {
          return WithNumber(s, "Less", "Less", v[0], count);
        },
        [&](const Scope& s, const Outputs& v) -> absl::StatusOr<Outputs> {
          Outputs next = {WithNumber(s, "AddV2", "add", v[0], 1)};
          const Outputs rest = body(s, Outputs(v.begin() + 1, v.end()));
          next.insert(next.end(), rest.begin(), rest.end());
          return next;
        });
  }
  Output Vector(absl::string_view name, int64_t size = 2) {
    return Placeholder(scope_, name, DType::kFloat, PartialShape({size}));
  }
  Output Predicate() { return Placeholder(scope_, "p", DType::kBool, PartialShape::Scalar()); }
  void ExpectNodes(absl::string_view text) {
    EXPECT_EQ(scope_.status(), absl::OkStatus());
    EXPECT_THAT(NodeList(graph_), ElementsAreArray(Lines(text)));
  }
  // Gradients of y, which are dense.
  Outputs Differentiate(Output y, Outputs xs) {
    absl::StatusOr<std::vector<Gradient>> gradients = Gradients(scope_, {y}, xs);
    EXPECT_EQ(gradients.status(), absl::OkStatus());
    Outputs outputs;
    if (!gradients.ok()) return outputs;
    for (const Gradient& gradient : *gradients) outputs.push_back(std::get<Output>(gradient));
    return outputs;
  }
  std::vector<std::vector<float>> Run(const std::vector<std::pair<Output, Tensor>>& feeds,
                                      const Outputs& fetches) {
    std::vector<std::vector<float>> values;
    auto session = Session::Create(graph_);
    EXPECT_EQ(session.status(), absl::OkStatus());
    if (!session.ok()) return values;
    const auto results = (*session)->Run(feeds, fetches);
    EXPECT_EQ(results.status(), absl::OkStatus());
    if (!results.ok()) return values;
    for (const Tensor& tensor : *results) {
      values.emplace_back(tensor.values<float>().begin(), tensor.values<float>().end());
    }
    return values;
  }
  static Tensor Pair(float a, float b) { return Tensor::Vector<float>({a, b}); }

  Graph graph_;
  Scope scope_;
};

TEST_F(ControlFlowTest, CondHasTensorFlowsNodes) {
  const Output a = scope_.ConstScalar<float>(1, "a");
  const Output b = scope_.ConstScalar<float>(2, "b");
  const Output less = WithNumber(scope_, "Less", "Less", a, 2);
  const auto merged = Cond(
      scope_, less,
      [&](const Scope& s) -> absl::StatusOr<Results> {
        return Results{WithNumber(s, "AddV2", "add", a, 1)};
      },
      [&](const Scope& s) -> absl::StatusOr<Results> {
        return Results{WithNumber(s, "AddV2", "add", b, 2)};
      });
  ASSERT_EQ(merged.status(), absl::OkStatus());
  ExpectNodes(R"(
a Const
b Const
Less/y Const
Less Less a,Less/y
cond/Switch Switch Less,Less
cond/switch_t Identity cond/Switch:1
cond/switch_f Identity cond/Switch
cond/pred_id Identity Less
cond/add/y Const ^cond/switch_t
cond/add AddV2 cond/add/Switch:1,cond/add/y
cond/add/Switch Switch a,cond/pred_id @a
cond/add_1/y Const ^cond/switch_f
cond/add_1 AddV2 cond/add_1/Switch,cond/add_1/y
cond/add_1/Switch Switch b,cond/pred_id @b
cond/Merge Merge cond/add_1,cond/add
)");
  EXPECT_FALSE(IsFetchable(*graph_.FindNode("cond/add")));
  EXPECT_TRUE(IsFetchable(*graph_.FindNode("cond/Merge")));
}

TEST_F(ControlFlowTest, BranchesMayReturnOuterTensorsAndNodes) {
  const Output x = Vector("x");
  const Output p = Predicate();
  const auto merged = Cond(
      scope_, p, [&](const Scope&) -> absl::StatusOr<Results> { return Results{x}; },
      [&](const Scope& s) -> absl::StatusOr<Results> { return Results{s.Op("Neg", {x})}; });
  ASSERT_EQ(merged.status(), absl::OkStatus());
  const auto guard = Cond(
      scope_, p,
      [&](const Scope& s) -> absl::StatusOr<Results> { return Results{s.Add("NoOp", {})}; },
      [&](const Scope& s) -> absl::StatusOr<Results> { return Results{s.Add("NoOp", {})}; },
      "guard");
  ASSERT_EQ(guard.status(), absl::OkStatus());
  ExpectNodes(R"(
x Placeholder
p Placeholder
cond/Switch Switch p,p
cond/switch_t Identity cond/Switch:1
cond/switch_f Identity cond/Switch
cond/pred_id Identity p
cond/Switch_1 Switch x,cond/pred_id @x
cond/Neg Neg cond/Neg/Switch
cond/Neg/Switch Switch x,cond/pred_id @x
cond/Merge Merge cond/Neg,cond/Switch_1:1
guard/Switch Switch p,p
guard/switch_t Identity guard/Switch:1
guard/switch_f Identity guard/Switch
guard/pred_id Identity p
guard/NoOp NoOp ^guard/switch_t
guard/control_dependency Identity guard/switch_t,^guard/NoOp @guard/switch_t
guard/NoOp_1 NoOp ^guard/switch_f
guard/control_dependency_1 Identity guard/switch_f,^guard/NoOp_1 @guard/switch_f
guard/Merge Merge guard/control_dependency_1,guard/control_dependency
)");
  EXPECT_THAT(Run({{x, Pair(1, 2)}, {p, Tensor::Scalar<bool>(false)}}, *merged),
              ElementsAreArray({std::vector<float>{-1, -2}}));
  EXPECT_THAT(Run({{x, Pair(1, 2)}, {p, Tensor::Scalar<bool>(true)}}, *merged),
              ElementsAreArray({std::vector<float>{1, 2}}));
}

TEST_F(ControlFlowTest, VariablesEnterABranchAsReferences) {
  const Output v = scope_.Op("VariableV2", {},
                             {{"shape", PartialShape::Scalar()}, {"dtype", DType::kFloat}}, "v");
  const Output value = scope_.ConstScalar<float>(1, "value");
  scope_.Op("Assign", {v, value}, {}, "v/Assign");
  const auto merged = Cond(
      scope_, Predicate(),
      [&](const Scope& s) -> absl::StatusOr<Results> {
        return Results{s.Op("Identity", {v}, {}, "read")};
      },
      [&](const Scope&) -> absl::StatusOr<Results> { return Results{value}; });
  ASSERT_EQ(merged.status(), absl::OkStatus());
  ExpectNodes(R"(
v VariableV2
value Const
v/Assign Assign v,value @v
p Placeholder
cond/Switch Switch p,p
cond/switch_t Identity cond/Switch:1
cond/switch_f Identity cond/Switch
cond/pred_id Identity p
cond/read Identity cond/read/Switch:1
cond/read/Switch RefSwitch v,cond/pred_id @v
cond/Switch_1 Switch value,cond/pred_id @value
cond/Merge Merge cond/Switch_1,cond/read
)");
}

TEST_F(ControlFlowTest, WhileHasTensorFlowsNodes) {
  const Output i = scope_.ConstScalar<int32_t>(0);
  const Output y = Vector("Placeholder");
  const auto exits = WhileLoop(
      scope_, {i, y},
      [](const Scope& s, const Outputs& v) { return WithNumber(s, "Less", "Less", v[0], 5); },
      [](const Scope& s, const Outputs& v) -> absl::StatusOr<Outputs> {
        const Output next = WithNumber(s, "AddV2", "add", v[0], 1);
        return Outputs{next, WithNumber(s, "Mul", "mul", v[1], 2)};
      });
  ASSERT_EQ(exits.status(), absl::OkStatus());
  ExpectNodes(R"(
Const Const
Placeholder Placeholder
while/Enter Enter Const
while/Enter_1 Enter Placeholder
while/Merge Merge while/Enter,while/NextIteration
while/Merge_1 Merge while/Enter_1,while/NextIteration_1
while/Less/y Const ^while/Merge
while/Less Less while/Merge,while/Less/y
while/LoopCond LoopCond while/Less
while/Switch Switch while/Merge,while/LoopCond @while/Merge
while/Switch_1 Switch while/Merge_1,while/LoopCond @while/Merge_1
while/Identity Identity while/Switch:1
while/Identity_1 Identity while/Switch_1:1
while/add/y Const ^while/Identity
while/add AddV2 while/Identity,while/add/y
while/mul/y Const ^while/Identity
while/mul Mul while/Identity_1,while/mul/y
while/NextIteration NextIteration while/add
while/NextIteration_1 NextIteration while/mul
while/Exit Exit while/Switch
while/Exit_1 Exit while/Switch_1
)");
  EXPECT_EQ(*graph_.FindNode("while/Enter")->Attr<std::string>("frame_name"),
            "while/while_context");
  EXPECT_THAT(Run({{y, Pair(1, 3)}}, {(*exits)[1]}),
              ElementsAreArray({std::vector<float>{32, 96}}));
}

TEST_F(ControlFlowTest, MaximumIterationsEndALoop) {
  const Output x = Vector("x");
  WhileOptions options;
  options.maximum_iterations = scope_.ConstScalar<int32_t>(3, "limit");
  const auto exits = WhileLoop(
      scope_, {x}, [](const Scope& s, const Outputs&) { return s.ConstScalar<bool>(true); },
      [](const Scope& s, const Outputs& v) -> absl::StatusOr<Outputs> {
        return Outputs{s.Op("AddV2", {v[0], v[0]})};
      },
      options);
  ASSERT_EQ(exits.status(), absl::OkStatus());
  EXPECT_THAT(Run({{x, Pair(1, 3)}}, *exits), ElementsAreArray({std::vector<float>{8, 24}}));
}

TEST_F(ControlFlowTest, ShapesMustStayUnlessTheInvariantAllowsMore) {
  const Output x = Vector("x");
  const auto condition = [](const Scope& s, const Outputs&) { return s.ConstScalar<bool>(false); };
  const auto body = [](const Scope& s, const Outputs& v) -> absl::StatusOr<Outputs> {
    return Outputs{EmitConcat(s, {v[0], v[0]})};
  };
  const auto fixed = WhileLoop(scope_, {x}, condition, body);
  EXPECT_THAT(
      std::string(fixed.status().message()),
      HasSubstr("enters the loop with shape (2,), but has shape (4,) after one iteration."));
  WhileOptions options;
  options.shape_invariants = {PartialShape::Vector(-1)};
  EXPECT_EQ(WhileLoop(scope_, {x}, condition, body, options).status(), absl::OkStatus());
}

TEST_F(ControlFlowTest, ValuesOfALoopCannotBeUsedOutside) {
  Output inner;
  ASSERT_EQ(CountedLoop(scope_, 3, {Vector("x")},
                        [&](const Scope& s, const Outputs& v) {
                          inner = s.Op("Tanh", {v[0]});
                          return Outputs{inner};
                        })
                .status(),
            absl::OkStatus());
  const auto outside = scope_.TryAdd("Neg", {inner});
  EXPECT_THAT(
      std::string(outside.status().message()),
      HasSubstr(
          "Cannot use 'while/Tanh' as input to 'Neg' because 'while/Tanh' is in a while loop."));
}

TEST_F(ControlFlowTest, GradientOfCond) {
  const Output x = Vector("x");
  const Output p = Predicate();
  const auto y = Cond(
      scope_, p,
      [&](const Scope& s) -> absl::StatusOr<Results> {
        return Results{s.Op("Mul", {x, x}, {}, "mul")};
      },
      [&](const Scope& s) -> absl::StatusOr<Results> { return Results{s.Op("Neg", {x})}; });
  ASSERT_EQ(y.status(), absl::OkStatus());
  const Outputs dx = Differentiate((*y)[0], {x});
  ExpectNodes(kCondGradient);
  EXPECT_THAT(Run({{x, Pair(1, 3)}, {p, Tensor::Scalar<bool>(true)}}, dx),
              ElementsAreArray({std::vector<float>{2, 6}}));
  EXPECT_THAT(Run({{x, Pair(1, 3)}, {p, Tensor::Scalar<bool>(false)}}, dx),
              ElementsAreArray({std::vector<float>{-1, -1}}));
}

TEST_F(ControlFlowTest, GradientOfWhile) {
  const Output x = Vector("x");
  const Output y = Vector("y");
  const auto exits = CountedLoop(scope_, 3, {x}, [&](const Scope& s, const Outputs& v) {
    return Outputs{s.Op("Mul", {v[0], y}, {}, "mul")};
  });
  ASSERT_EQ(exits.status(), absl::OkStatus());
  const Outputs gradients = Differentiate((*exits)[1], {x, y});
  ExpectNodes(kWhileGradient);
  // x*y^3: y^3 and 3*x*y^2.
  EXPECT_THAT(Run({{x, Pair(2, 5)}, {y, Pair(3, -1)}}, gradients),
              ElementsAreArray({std::vector<float>{27, -1}, std::vector<float>{54, 15}}));
}

TEST_F(ControlFlowTest, GradientOfWhileWithUnknownShape) {
  const Output x = Vector("x", -1);
  const auto exits = CountedLoop(scope_, 3, {x}, [&](const Scope& s, const Outputs& v) {
    return Outputs{s.Op("Tanh", {v[0]})};
  });
  ASSERT_EQ(exits.status(), absl::OkStatus());
  Differentiate((*exits)[1], {x});
  ExpectNodes(kUnknownShapeGradient);
}

TEST_F(ControlFlowTest, GradientOfNestedLoops) {
  const Output x = Vector("x");
  const Output y = Vector("y");
  const auto exits = CountedLoop(scope_, 3, {x}, [&](const Scope& s, const Outputs& v) {
    const auto inner = CountedLoop(s, 2, {v[0]}, [&](const Scope& t, const Outputs& w) {
      const Output tanh = t.Op("Tanh", {w[0]});
      return Outputs{t.Op("Mul", {tanh, y}, {}, "mul")};
    });
    EXPECT_EQ(inner.status(), absl::OkStatus());
    return inner.ok() ? Outputs{(*inner)[1]} : Outputs{Output()};
  });
  ASSERT_EQ(exits.status(), absl::OkStatus());
  const Outputs gradients = Differentiate((*exits)[1], {x, y});
  const auto values = Run({{x, Pair(0.5f, -1)}, {y, Pair(1.5f, 0.75f)}}, gradients);
  ASSERT_EQ(values.size(), 2u);
  for (int k = 0; k < 2; ++k) {
    const double x0 = k == 0 ? 0.5 : -1;
    const double y0 = k == 0 ? 1.5 : 0.75;
    double value = x0, dx = 1, dy = 0;
    for (int i = 0; i < 6; ++i) {
      const double t = std::tanh(value);
      dx = dx * (1 - t * t) * y0;
      dy = dy * (1 - t * t) * y0 + t;
      value = t * y0;
    }
    EXPECT_NEAR(values[0][k], dx, 1e-5);
    EXPECT_NEAR(values[1][k], dy, 1e-5);
  }
  ExpectNodes(kNestedWhileGradient);
}

TEST_F(ControlFlowTest, GradientOfCondInWhile) {
  const Output x = Vector("x");
  const Output y = Vector("y");
  const auto i = scope_.ConstScalar<int32_t>(0);
  const auto exits = WhileLoop(
      scope_, {i, x},
      [](const Scope& s, const Outputs& v) { return WithNumber(s, "Less", "Less", v[0], 3); },
      [&](const Scope& s, const Outputs& v) -> absl::StatusOr<Outputs> {
        const Output next = WithNumber(s, "AddV2", "add", v[0], 1);
        const Output is_one = WithNumber(s, "Equal", "Equal", v[0], 1);
        ASSIGN_OR_RETURN(const Outputs merged,
                         Cond(
                             s, is_one,
                             [&](const Scope& t) -> absl::StatusOr<Results> {
                               return Results{t.Op("Tanh", {v[1]})};
                             },
                             [&](const Scope& t) -> absl::StatusOr<Results> {
                               return Results{t.Op("Mul", {v[1], y}, {}, "mul")};
                             }));
        return Outputs{next, merged[0]};
      });
  ASSERT_EQ(exits.status(), absl::OkStatus());
  const Outputs gradients = Differentiate((*exits)[1], {x, y});
  ExpectNodes(kCondInWhileGradient);
  // tanh(x*y)*y.
  const auto values = Run({{x, Pair(0.5f, -1)}, {y, Pair(1.5f, 0.75f)}}, gradients);
  ASSERT_EQ(values.size(), 2u);
  for (int k = 0; k < 2; ++k) {
    const double x0 = k == 0 ? 0.5 : -1;
    const double y0 = k == 0 ? 1.5 : 0.75;
    const double t = std::tanh(x0 * y0);
    EXPECT_NEAR(values[0][k], (1 - t * t) * y0 * y0, 1e-5);
    EXPECT_NEAR(values[1][k], t + (1 - t * t) * x0 * y0, 1e-5);
  }
}

TEST_F(ControlFlowTest, GradientOfWhileInCond) {
  const Output x = Vector("x");
  const Output p = Predicate();
  const auto y = Cond(
      scope_, p,
      [&](const Scope& s) -> absl::StatusOr<Results> {
        ASSIGN_OR_RETURN(const Outputs exits,
                         CountedLoop(s, 3, {x}, [](const Scope& t, const Outputs& v) {
                           return Outputs{t.Op("Tanh", {v[0]})};
                         }));
        return Results{exits[1]};
      },
      [&](const Scope& s) -> absl::StatusOr<Results> { return Results{s.Op("Neg", {x})}; });
  ASSERT_EQ(y.status(), absl::OkStatus());
  const Outputs dx = Differentiate((*y)[0], {x});
  ExpectNodes(kWhileInCondGradient);
  double value = 0.5, derivative = 1;
  for (int i = 0; i < 3; ++i) {
    value = std::tanh(value);
    derivative *= 1 - value * value;
  }
  EXPECT_NEAR(Run({{x, Pair(0.5f, 1)}, {p, Tensor::Scalar<bool>(true)}}, dx)[0][0], derivative,
              1e-6);
  EXPECT_THAT(Run({{x, Pair(1, 3)}, {p, Tensor::Scalar<bool>(false)}}, dx),
              ElementsAreArray({std::vector<float>{-1, -1}}));
}

TEST_F(ControlFlowTest, UnusedResultsOfALoopTakePartInItsGradient) {
  const Output x = Vector("x");
  const auto exits = CountedLoop(scope_, 3, {x, x}, [](const Scope& s, const Outputs& v) {
    const Output tanh = s.Op("Tanh", {v[1]});
    return Outputs{tanh, s.Op("Sin", {v[1]})};
  });
  ASSERT_EQ(exits.status(), absl::OkStatus());
  const Outputs dx = Differentiate((*exits)[1], {x});
  ExpectNodes(kUnusedExitGradient);
  const double inner = std::sin(std::sin(0.5));
  const double tanh = std::tanh(inner);
  const double expected = (1 - tanh * tanh) * std::cos(std::sin(0.5)) * std::cos(0.5);
  EXPECT_NEAR(Run({{x, Pair(0.5f, 1)}}, dx)[0][0], expected, 1e-6);
}

TEST_F(ControlFlowTest, SparseGradientsAreCollectedOverIterations) {
  // acc += table[i] * (i + 1), so the gradient of row i is i + 1.
  for (const PartialShape& shape : {PartialShape({4, 2}), PartialShape({-1, -1})}) {
    const Output table = Placeholder(scope_, "table", DType::kFloat, shape);
    const Output start = EmitZeros(scope_, Shape({1, 2}), DType::kFloat);
    WhileOptions options;
    options.shape_invariants = {PartialShape::Scalar(), PartialShape()};
    const auto exits = WhileLoop(
        scope_, {scope_.ConstScalar<int32_t>(0), start},
        [](const Scope& s, const Outputs& v) { return WithNumber(s, "Less", "Less", v[0], 3); },
        [&](const Scope& s, const Outputs& v) -> absl::StatusOr<Outputs> {
          const Output next = WithNumber(s, "AddV2", "add", v[0], 1);
          const Output ids = EmitReshape(s, v[0], {1});
          const Output row = s.Op("GatherV2", {table, ids, s.ConstScalar<int32_t>(0)});
          const Output factor = s.Op("Cast", {next}, {{"DstT", DType::kFloat}});
          return Outputs{next, s.Op("AddV2", {v[1], s.Op("Mul", {row, factor})})};
        },
        options);
    ASSERT_EQ(exits.status(), absl::OkStatus());
    const auto gradients = Gradients(scope_, {(*exits)[1]}, {table});
    ASSERT_EQ(gradients.status(), absl::OkStatus());
    const auto* slices = std::get_if<IndexedSlices>(&(*gradients)[0]);
    ASSERT_NE(slices, nullptr);
    const Output rows = scope_.ConstScalar<int32_t>(4);
    const Output dense = scope_.Op("UnsortedSegmentSum", {slices->values, slices->indices, rows});
    ASSERT_EQ(scope_.status(), absl::OkStatus());
    const Tensor fed = Tensor::Zeros(DType::kFloat, Shape({4, 2}));
    EXPECT_THAT(Run({{table, fed}}, {dense}),
                ElementsAreArray({std::vector<float>{1, 1, 2, 2, 3, 3, 0, 0}}));
  }
}

TEST_F(ControlFlowTest, InvariantsOfUnknownShapeAreSummed) {
  const Output x = Vector("x", -1);
  const Output y = Vector("y", -1);
  const auto exits = CountedLoop(scope_, 2, {x}, [&](const Scope& s, const Outputs& v) {
    const auto inner = CountedLoop(s, 2, {v[0]}, [&](const Scope& t, const Outputs& w) {
      return Outputs{t.Op("Mul", {w[0], y}, {}, "mul")};
    });
    EXPECT_EQ(inner.status(), absl::OkStatus());
    return inner.ok() ? Outputs{(*inner)[1]} : Outputs{Output()};
  });
  ASSERT_EQ(exits.status(), absl::OkStatus());
  // x*y^4: y^4 and 4*x*y^3.
  EXPECT_THAT(Run({{x, Pair(2, 5)}, {y, Pair(3, -1)}}, Differentiate((*exits)[1], {x, y})),
              ElementsAreArray({std::vector<float>{81, 1}, std::vector<float>{216, -20}}));
}

TEST_F(ControlFlowTest, SecondDerivativesOfLoopsAreRefused) {
  const Output x = Vector("x");
  const Output y = Vector("y");
  const auto exits = CountedLoop(scope_, 3, {x}, [&](const Scope& s, const Outputs& v) {
    return Outputs{s.Op("Mul", {v[0], y}, {}, "mul")};
  });
  ASSERT_EQ(exits.status(), absl::OkStatus());
  const Outputs dx = Differentiate((*exits)[1], {x});
  const auto second = Gradients(scope_, dx, {y});
  EXPECT_EQ(second.status().message(), "Second-order gradient for while loops not supported.");
  EXPECT_EQ(ErrorKind(second.status()), kTypeError);
}

}  // namespace
}  // namespace muster
