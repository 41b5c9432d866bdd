#include "muster/graph/rewrite/optimize.h"
#include "muster/graph/rewrite/passes_test_util.h"

namespace muster {
namespace {

class SumRowsTest : public PassTest {
 protected:
  SumRowsTest()
      : device_(scope_.WithDevice("/device:GPU:0")),
        indices_(Placeholder(device_, "indices", DType::kInt64, {-1})),
        values_(Placeholder(device_, "values", DType::kFloat, {-1, 4})),
        lr_(device_.ConstScalar<float>(0.1f, "lr")) {}

  Output Variable(absl::string_view name) {
    return device_.Op("VariableV2", {}, {{"dtype", DType::kFloat}, {"shape", PartialShape({9, 4})}},
                      name);
  }
  // What an optimizer builds. `first` is the dimension of the shape that counts the segments.
  struct Summed {
    Output unique, sum;
  };
  Summed Deduplicate(const Scope& scope, int32_t first = 0) {
    Node* const unique = scope.Add("Unique", {indices_}, {{"out_idx", DType::kInt32}}, "unique");
    const Output shape = scope.Op("Shape", {unique->output(0)}, {}, "shape");
    const auto vector = [&](int32_t value, absl::string_view name) {
      return scope.ConstVector(std::vector<int32_t>{value}, name);
    };
    const Output count =
        scope.Op("StridedSlice",
                 {shape, vector(first, "begin"), vector(first + 1, "end"), vector(1, "step")},
                 {{"shrink_axis_mask", 1}}, "count");
    return {unique->output(0),
            scope.Op("UnsortedSegmentSum", {values_, unique->output(1), count}, {}, "sum")};
  }
  Output Apply(const Scope& scope, const Summed& summed) {
    return scope.Op("SparseApplyAdagrad",
                    {Variable("table"), Variable("accum"), lr_, summed.sum, summed.unique}, {},
                    "apply");
  }

  Scope device_;
  Output indices_, values_, lr_;
};

TEST_F(SumRowsTest, TheUpdateTakesTheGradientsAsTheyAre) {
  const Output apply = Apply(device_, Deduplicate(device_));
  Rewrite(SumRepeatedRows, {indices_, values_}, {}, {apply.node});
  const Node* const found = Find("apply");
  ASSERT_NE(found, nullptr);
  EXPECT_TRUE(found->Attr<bool>(kSumsRepeatedRows).value_or(false));
  EXPECT_EQ(found->input(3).node->op(), "_Arg");
  EXPECT_EQ(found->input(4).node->op(), "_Arg");
  EXPECT_EQ(Find("unique"), nullptr);
  EXPECT_EQ(Find("sum"), nullptr);
}

TEST_F(SumRowsTest, AnOpWithEffectsIsReplacedAndNotDoubled) {
  const auto handle = [&](absl::string_view name) {
    return device_.Op("VarHandleOp", {},
                      {{"dtype", DType::kFloat}, {"shape", PartialShape({9, 4})}}, name);
  };
  const Summed summed = Deduplicate(device_);
  Node* const apply =
      device_.Add("ResourceSparseApplyAdagrad",
                  {handle("table"), handle("accum"), lr_, summed.sum, summed.unique}, {}, "apply");
  Rewrite(SumRepeatedRows, {indices_, values_}, {}, {apply});
  int updates = 0;
  for (const auto& node : step_->nodes()) updates += node->op() == apply->op();
  EXPECT_EQ(updates, 1);
  EXPECT_TRUE(Find("apply")->Attr<bool>(kSumsRepeatedRows).value_or(false));
}

TEST_F(SumRowsTest, WhatOthersReadStays) {
  const Summed summed = Deduplicate(device_);
  const Output apply = Apply(device_, summed);
  Rewrite(SumRepeatedRows, {indices_, values_}, {summed.sum}, {apply.node});
  EXPECT_TRUE(Find("apply")->Attr<bool>(kSumsRepeatedRows).value_or(false));
  EXPECT_NE(Find("unique"), nullptr);
}

TEST_F(SumRowsTest, WhatIsScatteredHasAsManyRowsAsIndices) {
  const Summed summed = Deduplicate(device_);
  const Output scaled = device_.Op("Mul", {summed.sum, lr_}, {}, "scaled");
  const Output square = device_.Op("Mul", {summed.sum, summed.sum}, {}, "square");
  const Output m = device_.Op("ScatterAdd", {Variable("m"), summed.unique, scaled}, {}, "to_m");
  const Output v = device_.Op("ScatterAdd", {Variable("v"), summed.unique, square}, {}, "to_v");
  Rewrite(SumRepeatedRows, {indices_, values_}, {}, {m.node, v.node});
  const Output updates = Find("to_m")->input(2).node->input(0);
  EXPECT_EQ(updates.node->op(), "MusterSumRows");
  EXPECT_EQ(Find("to_m")->input(1), Output(updates.node, 1));
  EXPECT_EQ(Find("to_v")->input(1), Output(updates.node, 1));
  EXPECT_EQ(Find("unique"), nullptr);
  // A sum of all of them would be right, but their shape would be another.
  const Output fetched = device_.Op("Neg", {scaled}, {}, "fetched");
  Rewrite(SumRepeatedRows, {indices_, values_}, {fetched}, {m.node, v.node});
  EXPECT_NE(Find("unique"), nullptr);
  // An operand with a row for each of the unique indices.
  const Output rows = device_.Op("Mul", {summed.sum, values_}, {}, "rows");
  const Output other = device_.Op("ScatterAdd", {Variable("o"), summed.unique, rows}, {}, "to_o");
  Rewrite(SumRepeatedRows, {indices_, values_}, {}, {m.node, other.node});
  EXPECT_NE(Find("unique"), nullptr);
}

TEST_F(SumRowsTest, OtherGraphsStay) {
  const Scope cpu = scope_.WithDevice("/device:CPU:0");
  const Output on_cpu = Apply(cpu, Deduplicate(cpu));
  Rewrite(SumRepeatedRows, {indices_, values_}, {}, {on_cpu.node});
  EXPECT_EQ(Find("apply")->FindAttr(kSumsRepeatedRows), nullptr);
  // The rows of one gradient and the indices of another.
  const Summed other = Deduplicate(device_.NameScope("other"));
  const Output mixed = Apply(device_.NameScope("mixed"), {Deduplicate(device_).unique, other.sum});
  Rewrite(SumRepeatedRows, {indices_, values_}, {}, {mixed.node});
  EXPECT_EQ(Find("mixed/apply")->FindAttr(kSumsRepeatedRows), nullptr);
}

}  // namespace
}  // namespace muster
