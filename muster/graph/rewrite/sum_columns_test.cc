#include "muster/graph/rewrite/passes_test_util.h"

namespace muster {
namespace {

class SumColumnsTest : public PassTest {
 protected:
  SumColumnsTest()
      : device_(scope_.WithDevice("/device:GPU:0")),
        x_(Placeholder(device_, "x", DType::kFloat, {-1, 4})) {}

  Output Sum(const Scope& scope, Output x, int32_t axis, bool keep_dims, absl::string_view name) {
    const Output axes = scope.ConstVector(std::vector<int32_t>{axis}, "axes");
    return scope.Op("Sum", {x, axes}, {{"keep_dims", keep_dims}}, name);
  }

  Scope device_;
  Output x_;
};

TEST_F(SumColumnsTest, SumsOfRowsOnGpus) {
  const Output cube = Placeholder(device_, "cube", DType::kFloat, {2, 3, 4});
  const std::vector<Output> sums = {
      Sum(device_, x_, 0, false, "columns"), Sum(device_, x_, 1, false, "rows"),
      Sum(device_, x_, 0, true, "kept"), Sum(device_, cube, 0, false, "of_cube"),
      Sum(scope_, x_, 0, false, "on_host")};
  Rewrite(SumColumns, {x_, cube}, sums);
  EXPECT_EQ(Find("columns")->op(), "BiasAddGrad");
  for (absl::string_view name : {"rows", "kept", "of_cube", "on_host"})
    EXPECT_EQ(Find(name)->op(), "Sum") << name;
}

TEST_F(SumColumnsTest, TheGradientOfReluIsComputedWithItsSum) {
  const Output y = Placeholder(device_, "y", DType::kFloat, {-1, 4});
  const Output relu = device_.Op("ReluGrad", {x_, y}, {}, "relu");
  const Output sum = device_.Op("Square", {device_.Op("BiasAddGrad", {relu}, {}, "sum")}, {}, "s");
  const Output other = device_.Op("Square", {relu}, {}, "other");
  Rewrite(SumReluGradients, {x_, y}, {sum, other});
  const Node* const both = Find("s")->input(0).node;
  EXPECT_EQ(both->op(), "MusterReluBiasGrad");
  EXPECT_EQ(Find("s")->input(0).index, 1);
  EXPECT_EQ(Find("other")->input(0), Output(const_cast<Node*>(both), 0));

  // A sum that waits for something may have to come later.
  const Output second = device_.Op("ReluGrad", {x_, y}, {}, "second");
  const Output waits =
      device_.WithControlDependencies({other.node}).Op("BiasAddGrad", {second}, {}, "waits");
  Rewrite(SumReluGradients, {x_, y}, {device_.Op("Square", {waits}, {}, "t")});
  EXPECT_EQ(Find("t")->input(0).node->op(), "BiasAddGrad");
}

TEST_F(SumColumnsTest, ASmallProductSumsItsColumns) {
  const auto build = [&](int64_t rows, absl::string_view name, bool in_tuple) {
    const Scope own = device_.NameScope(name);
    const Output x = Placeholder(own, "x", DType::kFloat, {rows, 5});
    const Output dy = Placeholder(own, "dy", DType::kFloat, {rows, 4});
    const Output sum = own.Op("BiasAddGrad", {dy}, {}, "sum");
    const Scope after = own.WithControlDependencies({sum.node});
    const Output of = in_tuple ? after.Op("Identity", {dy}, {}, "of") : dy;
    const Output product = own.Op("MatMul", {x, of}, {{"transpose_a", true}}, "product");
    const Output dw = own.Op("Square", {product}, {}, "dw");
    const Output db = own.Op("Square", {sum}, {}, "db");
    Rewrite(SumColumnsOfProducts, {x, dy}, {dw, db});
  };
  for (const bool in_tuple : {false, true}) {
    const std::string name = in_tuple ? "tuple" : "small";
    build(100, name, in_tuple);
    const Node* const both = Find(name + "/dw")->input(0).node;
    EXPECT_EQ(both->op(), "MusterProductAndColumns") << name;
    EXPECT_EQ(Find(name + "/db")->input(0), Output(const_cast<Node*>(both), 1)) << name;
    EXPECT_TRUE(both->control_inputs().empty()) << name;
  }
  build(1000, "large", false);
  EXPECT_EQ(Find("large/dw")->input(0).node->op(), "MatMul");
  EXPECT_EQ(Find("large/db")->input(0).node->op(), "BiasAddGrad");
}

}  // namespace
}  // namespace muster
