#include "muster/params/accumulator.h"

#include <array>
#include <atomic>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster {
namespace {

using ::testing::ElementsAre;
using Reduction = Accumulator::Reduction;

Tensor Floats(std::vector<float> values) {
  return Tensor::Vector<float>(values);
}
std::vector<float> Values(const Tensor& tensor) {
  return {tensor.values<float>().begin(), tensor.values<float>().end()};
}
std::vector<int64_t> Integers(const Tensor& tensor) {
  return {tensor.values<int64_t>().begin(), tensor.values<int64_t>().end()};
}

// What a take got, once it is over.
struct Taken {
  bool over = false;
  absl::StatusOr<Accumulator::Tuple> result = absl::UnknownError("");
  uint64_t ticket = 0;  // when it waits
};

void Take(Accumulator& accumulator, int64_t required, Taken& taken) {
  accumulator.Take(
      required,
      [&taken](uint64_t ticket) {
        taken.ticket = ticket;
        return true;
      },
      [&taken](absl::StatusOr<Accumulator::Tuple> result) {
        taken.over = true;
        taken.result = std::move(result);
      });
}

class AccumulatorTest : public testing::Test {
 protected:
  DenseAccumulator dense_{"a", DType::kFloat, PartialShape({2}), Reduction::kMean};
};

TEST_F(AccumulatorTest, StaleGradientsAreDroppedWhateverTheirShape) {
  dense_.SetGlobalStep(5);
  EXPECT_TRUE(dense_.Apply(4, Floats({1, 2})).ok());
  EXPECT_TRUE(dense_.Apply(4, Floats({1, 2, 3})).ok());
  EXPECT_EQ(dense_.num_accumulated(), 0);
  EXPECT_TRUE(dense_.Apply(5, Floats({1, 2})).ok());
  EXPECT_EQ(dense_.num_accumulated(), 1);
  const absl::Status wrong = dense_.Apply(5, Floats({1, 2, 3}));
  EXPECT_EQ(wrong.message(), "Shape mismatch: expected [2], got [3]");
  EXPECT_EQ(dense_.num_accumulated(), 1);
}

TEST_F(AccumulatorTest, TheMeanIsOverAllThatCame) {
  for (const float x : {1.f, 2.f, 6.f}) ASSERT_TRUE(dense_.Apply(0, Floats({x, -x})).ok());
  Taken taken;
  Take(dense_, 2, taken);
  ASSERT_TRUE(taken.over && taken.result.ok());
  EXPECT_THAT(Values((*taken.result)[0]), ElementsAre(3, -3));
  EXPECT_EQ(dense_.num_accumulated(), 0);
  EXPECT_EQ(dense_.global_step(), 1);
}

TEST_F(AccumulatorTest, TakesAreServedInOrder) {
  Taken three, one;
  Take(dense_, 3, three);
  Take(dense_, 1, one);
  ASSERT_TRUE(dense_.Apply(0, Floats({1, 1})).ok());
  ASSERT_TRUE(dense_.Apply(0, Floats({1, 1})).ok());
  EXPECT_FALSE(three.over || one.over);
  ASSERT_TRUE(dense_.Apply(0, Floats({4, 1})).ok());
  EXPECT_TRUE(three.over && !one.over);
  ASSERT_TRUE(dense_.Apply(0, Floats({4, 1})).ok());  // stale now
  EXPECT_FALSE(one.over);
  ASSERT_TRUE(dense_.Apply(1, Floats({7, 1})).ok());
  ASSERT_TRUE(one.over);
  EXPECT_THAT(Values((*one.result)[0]), ElementsAre(7, 1));
}

TEST_F(AccumulatorTest, AWithdrawnTakeLeavesTheGradientsToTheNext) {
  Taken three, two;
  Take(dense_, 3, three);
  Take(dense_, 2, two);
  ASSERT_TRUE(dense_.Apply(0, Floats({1, 1})).ok());
  ASSERT_TRUE(dense_.Apply(0, Floats({3, 1})).ok());
  EXPECT_TRUE(dense_.Cancel(three.ticket));
  EXPECT_TRUE(absl::IsCancelled(three.result.status()));
  EXPECT_FALSE(two.over);
  dense_.Flush();
  ASSERT_TRUE(two.over);
  EXPECT_THAT(Values((*two.result)[0]), ElementsAre(2, 1));
  EXPECT_FALSE(dense_.Cancel(two.ticket));
}

TEST_F(AccumulatorTest, TakesThatMayNotWaitEndAtOnce) {
  absl::StatusOr<Accumulator::Tuple> result = absl::UnknownError("");
  dense_.Take(
      1, [](uint64_t) { return false; }, [&](auto taken) { result = std::move(taken); });
  EXPECT_TRUE(absl::IsCancelled(result.status()));
  Taken none;
  Take(dense_, 0, none);
  EXPECT_EQ(none.result.status().message(), "Argument num_required must be positive, but was 0");
}

TEST_F(AccumulatorTest, GradientsThatOthersHoldStayAsTheyAre) {
  const Tensor first = Floats({1, 2});
  const Tensor second = Floats({10, 20});
  ASSERT_TRUE(dense_.Apply(0, first).ok());
  ASSERT_TRUE(dense_.Apply(0, second).ok());
  ASSERT_TRUE(dense_.Apply(0, Floats({1, 2})).ok());
  Taken taken;
  Take(dense_, 1, taken);
  EXPECT_THAT(Values((*taken.result)[0]), ElementsAre(4, 8));
  EXPECT_THAT(Values(first), ElementsAre(1, 2));
  EXPECT_THAT(Values(second), ElementsAre(10, 20));
}

// Whether the last gradient or the take comes last, the elements are the same.
TEST_F(AccumulatorTest, AMeanThatIsWaitedForHasTheSameElements) {
  const std::vector<std::vector<float>> gradients = {{0.1f, 1e8f}, {0.7f, 3.f}, {-0.3f, 1e-3f}};
  Taken before, after;
  for (const auto& each : gradients) ASSERT_TRUE(dense_.Apply(0, Floats(each)).ok());
  Take(dense_, 3, before);
  Take(dense_, 3, after);
  const Tensor held = Floats(gradients[1]);
  ASSERT_TRUE(dense_.Apply(1, Floats(gradients[0])).ok());
  ASSERT_TRUE(dense_.Apply(1, held).ok());
  ASSERT_FALSE(after.over);
  ASSERT_TRUE(dense_.Apply(1, Floats(gradients[2])).ok());
  ASSERT_TRUE(before.over && before.result.ok() && after.over && after.result.ok());
  EXPECT_EQ(Values((*after.result)[0]), Values((*before.result)[0]));
  EXPECT_THAT(Values(held), ElementsAre(0.7f, 3.f));
  // And the next one is divided again.
  ASSERT_TRUE(dense_.Apply(2, Floats({2, 4})).ok());
  ASSERT_TRUE(dense_.Apply(2, Floats({4, 8})).ok());
  Taken next;
  Take(dense_, 1, next);
  ASSERT_TRUE(next.over && next.result.ok());
  EXPECT_THAT(Values((*next.result)[0]), ElementsAre(3, 6));
}

// Memory of another task, which writes into it once it is given back.
TEST_F(AccumulatorTest, WhatOthersMayWriteIsCopiedWhereItIsKept) {
  alignas(64) std::array<float, 2> theirs = {1, 2};
  const auto lent = [&] {
    return *Tensor::FromBuffer(DType::kFloat, Shape({2}),
                               Buffer::AdoptExternal(theirs.data(), sizeof(theirs), [] {}));
  };
  ASSERT_TRUE(dense_.Apply(0, lent()).ok());
  theirs = {10, 20};
  ASSERT_TRUE(dense_.Apply(0, lent()).ok());
  theirs = {100, 200};
  Taken taken;
  Take(dense_, 2, taken);
  ASSERT_TRUE(taken.over && taken.result.ok());
  EXPECT_THAT(Values((*taken.result)[0]), ElementsAre(5.5f, 11));
  EXPECT_THAT(theirs, ElementsAre(100, 200));
}

TEST_F(AccumulatorTest, ASingleGradientIsHandedOnWithoutACopy) {
  const Tensor gradient = Floats({1, 2});
  ASSERT_TRUE(dense_.Apply(0, gradient).ok());
  Taken taken;
  Take(dense_, 1, taken);
  EXPECT_EQ((*taken.result)[0].raw(), gradient.raw());
}

TEST_F(AccumulatorTest, NoGradientIsLostAmongThreads) {
  constexpr int kThreads = 4;
  constexpr int kEach = 500;
  std::atomic<int64_t> sum{0};
  DenseAccumulator total("t", DType::kFloat, PartialShape({2}), Reduction::kSum);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kEach; ++i) {
        // Far in the future: never stale.
        ASSERT_TRUE(total.Apply(1 << 30, Floats({1, 1})).ok());
        total.Take(
            1, [](uint64_t) { return false; },
            [&sum](auto taken) {
              if (taken.ok()) sum += static_cast<int64_t>((*taken)[0].template data<float>()[0]);
            });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(sum + total.num_accumulated(), kThreads * kEach);
}

SparseGradient Rows(std::vector<int64_t> indices, std::vector<float> values, int64_t width = 1) {
  const auto rows = static_cast<int64_t>(indices.size());
  return {Tensor::Vector<int64_t>(indices), Tensor::Of<float>(Shape({rows, width}), values),
          Tensor::Vector<int64_t>({})};
}

TEST(SparseAccumulatorTest, RowsHaveMeansOfTheirOwn) {
  SparseAccumulator sparse("s", DType::kFloat, PartialShape::Scalar(), Reduction::kMean);
  ASSERT_TRUE(sparse.Apply(0, false, Rows({1, 3}, {1, 3})).ok());
  ASSERT_TRUE(sparse.Apply(0, false, Rows({0, 3}, {8, 5})).ok());
  Taken taken;
  Take(sparse, 2, taken);
  ASSERT_TRUE(taken.result.ok());
  EXPECT_THAT(Integers((*taken.result)[0]), ElementsAre(0, 1, 3));
  EXPECT_THAT(Values((*taken.result)[1]), ElementsAre(8, 1, 4));
  EXPECT_THAT(Integers((*taken.result)[2]), ElementsAre(-1, 1));
}

TEST(SparseAccumulatorTest, DuplicatesAreMergedByTheWalkOnly) {
  SparseAccumulator sparse("s", DType::kFloat, PartialShape({9, 1}), Reduction::kMean);
  ASSERT_TRUE(sparse.Apply(0, false, Rows({1, 3}, {1, 3})).ok());
  ASSERT_TRUE(sparse.Apply(0, false, Rows({3, 3}, {5, 7})).ok());
  Taken taken;
  Take(sparse, 1, taken);
  ASSERT_TRUE(taken.result.ok());
  EXPECT_THAT(Integers((*taken.result)[0]), ElementsAre(1, 3, 3));
  EXPECT_THAT(Values((*taken.result)[1]), ElementsAre(1, 4, 7));
  EXPECT_THAT(Integers((*taken.result)[2]), ElementsAre(9, 1));
}

TEST(SparseAccumulatorTest, WhatDoesNotFitIsRefused) {
  SparseAccumulator sparse("s", DType::kFloat, PartialShape({4, 2}), Reduction::kMean);
  EXPECT_EQ(sparse.Apply(0, false, Rows({4}, {1, 1}, 2)).message(),
            "Shape mismatch: index of slice 0 exceeded limits of shape; index is 4 exceeded 4");
  EXPECT_EQ(sparse.Apply(0, false, Rows({1}, {1}, 1)).message(),
            "Shape mismatch: expected values dim 1 to be 2, got 1");
  EXPECT_EQ(sparse.Apply(0, true, Rows({1}, {1, 1}, 2)).message(),
            "Shape mismatch: expected shape rank at least 2, got 0");
  SparseGradient uneven = Rows({1}, {1, 1}, 2);
  uneven.indices = Tensor::Vector<int64_t>({1, 2});
  EXPECT_TRUE(absl::IsInvalidArgument(sparse.Apply(0, false, uneven)));
  EXPECT_TRUE(sparse.Apply(-1, false, uneven).ok());  // stale
  EXPECT_EQ(sparse.num_accumulated(), 0);
}

}  // namespace
}  // namespace muster
