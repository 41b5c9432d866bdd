#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/client/session.h"
#include "muster/ops/kernel_test.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::Pointwise;

Tensor Floats1(std::vector<float> values) {
  return Tensor::Vector<float>(values);
}
Tensor Floats2(std::vector<float> values) {
  return Tensor::Of<float>(Shape({static_cast<int64_t>(values.size()) / 2, 2}), values);
}
Tensor Scalar(float value) {
  return Tensor::Scalar<float>(value);
}

std::vector<float> Values(const Tensor& tensor) {
  return {tensor.values<float>().begin(), tensor.values<float>().end()};
}

TEST(StateTest, AssignSharesMemoryAndUpdatesCopyIt) {
  const Tensor value = Floats1({1, 2});
  KernelRun assign;
  const RefPtr<Variable> variable = assign.AddReference(DType::kFloat, Shape({2}), Tensor());
  assign.AddValue(value);
  ASSERT_TRUE(assign.Make("Assign").ok());
  ASSERT_TRUE(assign.Run().ok());
  EXPECT_EQ(variable->Snapshot().raw(), value.raw());
  ASSERT_TRUE(variable
                  ->Update([](Tensor& current) {
                    current.data<float>()[0] = 7;
                    return absl::OkStatus();
                  })
                  .ok());
  EXPECT_THAT(Values(value), ElementsAre(1, 2));
  EXPECT_THAT(Values(variable->Snapshot()), ElementsAre(7, 2));
}

TEST(StateTest, AClearedContainerTakesItsVariablesAlong) {
  Graph graph;
  const Scope scope(graph);
  const AttrMap attrs = {{"dtype", DType::kFloat}, {"shape", PartialShape({})}};
  const Output by_reference = scope.Op("VariableV2", {}, attrs, "v");
  const Output value =
      scope.Op("Const", {}, {{"dtype", DType::kFloat}, {"value", Scalar(2)}}, "value");
  const Output assign = scope.Op("Assign", {by_reference, value}, {}, "assign");
  const Output read = scope.Op("Identity", {by_reference}, {}, "read");
  ASSERT_EQ(scope.status(), absl::OkStatus());
  const auto session = Session::Create(graph, {});
  ASSERT_EQ(session.status(), absl::OkStatus());
  for (int round = 0; round < 2; ++round) {
    EXPECT_TRUE(absl::IsFailedPrecondition((*session)->Run({}, {read}).status()));
    ASSERT_EQ((*session)->Run({}, {assign}).status(), absl::OkStatus());
    const auto result = (*session)->Run({}, {read});
    ASSERT_EQ(result.status(), absl::OkStatus());
    EXPECT_EQ((*result)[0].scalar<float>(), 2);
    (*session)->resources().ClearContainer("");
  }
}

TEST(StateTest, AssignChecksTheShape) {
  KernelRun run;
  run.AddReference(DType::kFloat, Shape({2}), Tensor());
  run.AddValue(Floats1({1, 2, 3}));
  ASSERT_TRUE(run.Make("Assign").ok());
  EXPECT_EQ(run.Run().status().message(),
            "Assign requires shapes of both tensors to match. lhs shape= [2] rhs shape= [3]");
}

TEST(StateTest, CountUpToStopsAtTheLimit) {
  KernelRun run;
  run.AddReference(DType::kInt32, Shape(), Tensor::Scalar<int32_t>(2));
  ASSERT_TRUE(run.Make("CountUpTo", {{"limit", 3}}).ok());
  EXPECT_EQ((*run.Run())[0].scalar<int32_t>(), 2);
  const absl::Status status = run.Run().status();
  EXPECT_EQ(status, absl::OutOfRangeError("Reached limit of 3"));
}

TEST(StateTest, RepeatedIndicesAccumulate) {
  KernelRun run;
  run.AddReference(DType::kFloat, Shape({3, 2}), Floats2({1, 2, 3, 4, 5, 6}));
  run.AddValue(Tensor::Vector<int64_t>({2, 0, 2}));
  run.AddValue(Floats2({1, 1, 10, 10, 2, 2}));
  ASSERT_TRUE(run.Make("ScatterAdd").ok());
  EXPECT_THAT(Values((*run.Run())[0]), ElementsAre(11, 12, 3, 4, 8, 9));
}

TEST(StateTest, NothingChangesWhenAnIndexIsBad) {
  KernelRun run;
  run.AddReference(DType::kFloat, Shape({2}), Floats1({1, 2}));
  run.AddValue(Tensor::Vector<int32_t>({0, 5}));
  run.AddValue(Floats1({1, 1}));
  ASSERT_TRUE(run.Make("ScatterAdd").ok());
  EXPECT_EQ(run.Run().status().message(), "indices[1] = 5 is not in [0, 2)");
  EXPECT_THAT(Values(*run.VariableValue(0)), ElementsAre(1, 2));
}

TEST(StateTest, ReadingAnUnassignedResource) {
  KernelRun run;
  run.AddResource(DType::kFloat, Shape(), Tensor());
  ASSERT_TRUE(run.Make("ReadVariableOp", {{"dtype", DType::kFloat}}).ok());
  EXPECT_EQ(run.Run().status(), absl::FailedPreconditionError(
                                    "Error while reading resource variable handle from Container: "
                                    "localhost. This could mean that the variable "
                                    "was uninitialized. Not found: Container localhost does not "
                                    "exist. (Could not find resource: localhost/handle)"));
}

TEST(StateTest, MomentumByReferenceAndResource) {
  for (const bool resource : {false, true}) {
    KernelRun run;
    for (const std::vector<float>& start :
         {std::vector<float>{1, 2}, std::vector<float>{0.5f, -0.5f}}) {
      if (resource) {
        run.AddResource(DType::kFloat, Shape({2}), Floats1(start));
      } else {
        run.AddReference(DType::kFloat, Shape({2}), Floats1(start));
      }
    }
    for (const Tensor& input : {Scalar(0.1f), Floats1({1, -1}), Scalar(0.9f)}) run.AddValue(input);
    const absl::Status made = run.Make(resource ? "ResourceApplyMomentum" : "ApplyMomentum");
    ASSERT_TRUE(made.ok()) << made;
    ASSERT_TRUE(run.Run().ok());
    EXPECT_THAT(Values(*run.VariableValue(1)),
                Pointwise(FloatNear(1e-6f), std::vector<float>{1.45f, -1.45f}));
    EXPECT_THAT(Values(*run.VariableValue(0)),
                Pointwise(FloatNear(1e-6f), std::vector<float>{0.855f, 2.145f}));
  }
}

TEST(StateTest, SparseRowsAreCheckedAndOnlyTheyChange) {
  for (const int32_t row : {1, 7}) {
    KernelRun run;
    run.AddReference(DType::kFloat, Shape({2, 2}), Floats2({1, 2, 3, 4}));
    run.AddReference(DType::kFloat, Shape({2, 2}), Floats2({0, 0, 0, 0}));
    for (const Tensor& input :
         {Scalar(0.1f), Floats2({1, 2}), Tensor::Vector<int32_t>({row}), Scalar(0.9f)})
      run.AddValue(input);
    ASSERT_TRUE(run.Make("SparseApplyMomentum").ok());
    const absl::Status status = run.Run().status();
    if (row == 7) {
      EXPECT_EQ(status.message(), "Index 7 at offset 0 in indices is out of range");
    } else {
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_THAT(Values(*run.VariableValue(0)),
                  Pointwise(FloatNear(1e-6f), std::vector<float>{1, 2, 2.9f, 3.8f}));
    }
  }
}

// The first step of TensorFlow's Adam with learning rate 0.1.
TEST(StateTest, Adam) {
  KernelRun run;
  run.AddReference(DType::kFloat, Shape({2}), Floats1({1, -2}));
  run.AddReference(DType::kFloat, Shape({2}), Floats1({0, 0}));
  run.AddReference(DType::kFloat, Shape({2}), Floats1({0, 0}));
  for (float scalar : {0.9f, 0.999f, 0.1f, 0.9f, 0.999f, 1e-8f}) run.AddValue(Scalar(scalar));
  run.AddValue(Floats1({0.5f, -0.25f}));
  ASSERT_TRUE(run.Make("ApplyAdam").ok());
  EXPECT_THAT(Values((*run.Run())[0]),
              Pointwise(FloatNear(1e-6f), std::vector<float>{0.9f, -1.9f}));
  EXPECT_THAT(Values(*run.VariableValue(1)),
              Pointwise(FloatNear(1e-7f), std::vector<float>{0.05f, -0.025f}));
}

TEST(StateTest, UninitialisedVariableStopsAnOptimizer) {
  KernelRun run;
  run.AddReference(DType::kFloat, Shape({2}), Tensor());
  run.AddValue(Scalar(0.1f));
  run.AddValue(Floats1({1, 1}));
  ASSERT_TRUE(run.Make("ApplyGradientDescent").ok());
  EXPECT_EQ(run.Run().status(),
            absl::FailedPreconditionError("Attempting to use uninitialized value v"));
}

}  // namespace
}  // namespace muster
