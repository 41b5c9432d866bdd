// Which rows the ops that change variables say they have changed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/ops/kernel_test.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int64_t kRows = 100;

Tensor Ones(Shape shape) {
  Tensor tensor(DType::kFloat, std::move(shape));
  std::fill_n(tensor.data<float>(), tensor.num_elements(), 1.0f);
  return tensor;
}

// Runs the op once and checks that a copy of the variable that gets the delta is equal to it.
StateDelta ChangesOf(KernelRun& run, const RefPtr<Variable>& variable) {
  const RefPtr<Variable> copy =
      MakeRef<Variable>("copy", variable->dtype(), variable->declared_shape());
  EXPECT_EQ(copy->ApplyDelta(StateDelta::Whole(variable->TakeSnapshot().value())),
            absl::OkStatus());
  StateWatch watch(variable);
  EXPECT_EQ(run.Run().status(), absl::OkStatus());
  StateDelta delta = watch.ChangesSince(copy->epoch()).value();
  EXPECT_EQ(copy->ApplyDelta(delta), absl::OkStatus());
  EXPECT_TRUE(SameTensor(copy->Snapshot(), variable->Snapshot()));
  return delta;
}

TEST(TouchedRowsTest, ScattersTouchTheirRows) {
  for (const char* op : {"ScatterAdd", "ScatterUpdate", "ScatterMul", "ScatterMax"}) {
    KernelRun run;
    const RefPtr<Variable> variable =
        run.AddReference(DType::kFloat, Shape({kRows, 2}), Ones(Shape({kRows, 2})));
    run.AddValue(Tensor::Vector<int64_t>({42, 0, 42}));
    run.AddValue(Ones(Shape({3, 2})));
    ASSERT_EQ(run.Make(op), absl::OkStatus());
    const StateDelta delta = ChangesOf(run, variable);
    EXPECT_FALSE(delta.whole) << op;
    EXPECT_THAT(delta.rows, ElementsAre(0, 42)) << op;
  }
}

TEST(TouchedRowsTest, TuplesTouchTheRowsThatTheyBeginWith) {
  const struct {
    Tensor indices;
    Shape updates;
    std::vector<int64_t> rows;
  } cases[] = {
      {Tensor::Of<int32_t>(Shape({2, 1}), {7, 3}), Shape({2, 2, 3}), {3, 7}},
      {Tensor::Of<int32_t>(Shape({2, 2}), {99, 1, 5, 0}), Shape({2, 3}), {5, 99}},
      {Tensor::Of<int32_t>(Shape({2, 3}), {9, 1, 2, 9, 0, 0}), Shape({2}), {9}},
  };
  for (const auto& c : cases) {
    KernelRun run;
    const RefPtr<Variable> variable =
        run.AddReference(DType::kFloat, Shape({kRows, 2, 3}), Ones(Shape({kRows, 2, 3})));
    run.AddValue(c.indices);
    run.AddValue(Ones(c.updates));
    ASSERT_EQ(run.Make("ScatterNdAdd"), absl::OkStatus());
    EXPECT_EQ(ChangesOf(run, variable).rows, c.rows);
  }
}

// Slots are variables: they are followed as the variable is.
TEST(TouchedRowsTest, SparseGradientsTouchTheirRowsOfVariableAndSlots) {
  for (const int followed : {0, 1}) {
    KernelRun run;
    std::vector<RefPtr<Variable>> variables;
    for (int i = 0; i < 2; ++i)
      variables.push_back(
          run.AddReference(DType::kFloat, Shape({kRows, 2}), Ones(Shape({kRows, 2}))));
    run.AddValue(Tensor::Scalar<float>(0.1f));
    run.AddValue(Ones(Shape({3, 2})));
    run.AddValue(Tensor::Vector<int32_t>({8, 4, 8}));
    run.AddValue(Tensor::Scalar<float>(0.9f));
    ASSERT_EQ(run.Make("SparseApplyMomentum"), absl::OkStatus());
    const StateDelta delta = ChangesOf(run, variables[followed]);
    EXPECT_FALSE(delta.whole);
    EXPECT_THAT(delta.rows, ElementsAre(4, 8));
  }
}

TEST(TouchedRowsTest, DenseUpdatesTouchTheWhole) {
  KernelRun run;
  const RefPtr<Variable> variable =
      run.AddReference(DType::kFloat, Shape({kRows}), Ones(Shape({kRows})));
  run.AddValue(Ones(Shape({kRows})));
  ASSERT_EQ(run.Make("AssignAdd"), absl::OkStatus());
  EXPECT_TRUE(ChangesOf(run, variable).whole);
}

TEST(TouchedRowsTest, AFailedSparseUpdateTouchesNothing) {
  KernelRun run;
  const RefPtr<Variable> variable =
      run.AddReference(DType::kFloat, Shape({kRows, 2}), Ones(Shape({kRows, 2})));
  run.AddReference(DType::kFloat, Shape({kRows, 2}), Ones(Shape({kRows, 2})));
  run.AddValue(Tensor::Scalar<float>(0.1f));
  run.AddValue(Ones(Shape({1, 2})));
  run.AddValue(Tensor::Vector<int32_t>({kRows}));
  run.AddValue(Tensor::Scalar<float>(0.9f));
  ASSERT_EQ(run.Make("SparseApplyMomentum"), absl::OkStatus());
  StateWatch watch(variable);
  const int64_t before = variable->epoch();
  EXPECT_TRUE(absl::IsInvalidArgument(run.Run().status()));
  EXPECT_THAT(watch.ChangesSince(before)->rows, IsEmpty());
  EXPECT_FALSE(watch.ChangesSince(before)->whole);
}

}  // namespace
}  // namespace muster
