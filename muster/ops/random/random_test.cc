// A handful of TensorFlow 1.15.5's own numbers; the rest of the golden vectors is compared from
// Python.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/ops/kernel_test.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::Pointwise;

Tensor Ints(std::vector<int32_t> values) {
  return Tensor::Vector<int32_t>(values);
}

template <typename T>
std::vector<T> Values(const Tensor& tensor) {
  return {tensor.values<T>().begin(), tensor.values<T>().end()};
}

// The first outputs of `runs` executions of one kernel.
template <typename T>
std::vector<std::vector<T>> Runs(absl::string_view op, AttrMap attrs, std::vector<Tensor> inputs,
                                 int runs) {
  KernelRun run;
  for (Tensor& input : inputs) run.AddValue(std::move(input));
  const absl::Status made = run.Make(op, std::move(attrs));
  EXPECT_TRUE(made.ok()) << made;
  std::vector<std::vector<T>> results;
  for (int i = 0; made.ok() && i < runs; ++i) {
    const absl::StatusOr<std::vector<Tensor>> outputs = run.Run();
    EXPECT_TRUE(outputs.ok()) << outputs.status();
    if (outputs.ok()) results.push_back(Values<T>((*outputs)[0]));
  }
  return results;
}

TEST(RandomTest, UniformContinuesFromRunToRun) {
  const auto runs =
      Runs<float>("RandomUniform", {{"seed", 87654321}, {"seed2", 2}, {"dtype", DType::kFloat}},
                  {Ints({6})}, 2);
  EXPECT_THAT(runs[0], ElementsAre(0.678746581f, 0.714150906f, 0.469816923f, 0.481969714f,
                                   0.478381753f, 0.553895354f));
  EXPECT_THAT(runs[1], ElementsAre(0.912433505f, 0.328997493f, 0.798093915f, 0.391858816f,
                                   0.711126328f, 0.520226717f));
}

TEST(RandomTest, NormalAndTruncatedNormal) {
  const AttrMap attrs = {{"seed", 87654321}, {"seed2", 2}, {"dtype", DType::kFloat}};
  const std::vector<float> normal = {-0.858110845f, -0.196622983f, 0.138950452f,
                                     -1.22127676f,  -0.403412849f, -1.1454041f};
  EXPECT_THAT(Runs<float>("RandomStandardNormal", attrs, {Ints({2, 3})}, 1)[0],
              Pointwise(FloatNear(2e-6f), normal));
  const std::vector<float> truncated = {-0.858110845f, -0.196622983f, 0.138950452f,  -1.22127676f,
                                        -0.207931429f, -1.77827966f,  -0.446810365f, -0.112370506f,
                                        -1.0977627f,   0.432406694f};
  EXPECT_THAT(Runs<float>("TruncatedNormal", attrs, {Ints({10})}, 1)[0],
              Pointwise(FloatNear(2e-6f), truncated));
}

TEST(RandomTest, LargeTensorsDoNotDependOnTheSplit) {
  const AttrMap attrs = {{"seed", 5}, {"seed2", 1}, {"dtype", DType::kFloat}};
  const auto large = Runs<float>("TruncatedNormal", attrs, {Ints({100003})}, 1)[0];
  const auto small = Runs<float>("TruncatedNormal", attrs, {Ints({64})}, 1)[0];
  for (size_t i = 0; i < small.size(); ++i) EXPECT_EQ(large[i], small[i]);
  EXPECT_NEAR(large[99999], -0x1.6724e4p-1f, 2e-6);
  EXPECT_NEAR(large[100002], 0x1.d8d3b8p-1f, 2e-6);
}

TEST(RandomTest, Integers) {
  const AttrMap attrs = {{"seed", 87654321}, {"seed2", 2}};
  const auto runs =
      Runs<int32_t>("RandomUniformInt", attrs,
                    {Ints({9}), Tensor::Scalar<int32_t>(0), Tensor::Scalar<int32_t>(10)}, 2);
  EXPECT_THAT(runs[0], ElementsAre(1, 6, 6, 7, 9, 5, 7, 7, 4));
  EXPECT_THAT(runs[1], ElementsAre(0, 5, 3, 4, 8, 7, 1, 1, 5));
}

TEST(RandomTest, EmptyRangeIsAnError) {
  KernelRun run;
  for (Tensor input : {Ints({2}), Tensor::Scalar<int32_t>(5), Tensor::Scalar<int32_t>(5)})
    run.AddValue(input);
  ASSERT_TRUE(run.Make("RandomUniformInt").ok());
  EXPECT_EQ(run.Run().status().message(), "Need minval < maxval, got 5 >= 5");
}

TEST(RandomTest, Shuffle) {
  const auto runs = Runs<int32_t>("RandomShuffle", {{"seed", 87654321}, {"seed2", 2}},
                                  {Ints({0, 1, 2, 3, 4})}, 3);
  EXPECT_THAT(runs[0], ElementsAre(1, 0, 2, 4, 3));
  EXPECT_THAT(runs[1], ElementsAre(4, 0, 1, 2, 3));
  EXPECT_THAT(runs[2], ElementsAre(4, 1, 2, 0, 3));
}

TEST(RandomTest, CandidateSamplersDrawDistinctClasses) {
  const Tensor true_classes = Tensor::Of<int64_t>(Shape({2, 2}), {1, 5, 3, 90});
  const AttrMap attrs = {{"num_true", 2},    {"num_sampled", 8}, {"unique", true},
                         {"range_max", 100}, {"seed", 5},        {"seed2", 1}};
  const auto log_uniform = Runs<int64_t>("LogUniformCandidateSampler", attrs, {true_classes}, 2);
  EXPECT_THAT(log_uniform[0], ElementsAre(0, 5, 2, 1, 26, 39, 4, 30));
  EXPECT_THAT(log_uniform[1], ElementsAre(0, 9, 17, 10, 1, 4, 44, 2));
  const auto learned = Runs<int64_t>("LearnedUnigramCandidateSampler", attrs, {true_classes}, 2);
  EXPECT_THAT(learned[0], ElementsAre(24, 91, 53, 9, 80, 77, 5, 86));
  EXPECT_THAT(learned[1], ElementsAre(45, 33, 0, 60, 48, 46, 37, 86));
}

TEST(RandomTest, SamplerRangeIsChecked) {
  KernelRun run;
  run.AddValue(Tensor::Of<int64_t>(Shape({1, 1}), {0}));
  ASSERT_TRUE(run.Make("UniformCandidateSampler",
                       {{"num_true", 1}, {"num_sampled", 8}, {"unique", true}, {"range_max", 4}})
                  .ok());
  EXPECT_EQ(run.Run().status().message(), "Sampler's range is too small.");
}

// The generator of a kernel is among the states of the task: a copy goes on with the same numbers.
TEST(RandomTest, TheGeneratorOfAKernelIsAState) {
  const auto make = [](KernelRun& run, int64_t seed) {
    run.AddValue(Ints({5}));
    ASSERT_EQ(run.Make("RandomUniform", {{"dtype", DType::kFloat}, {"seed", seed}}),
              absl::OkStatus());
  };
  KernelRun original;
  make(original, 1);
  KernelRun other;
  make(other, 2);
  ASSERT_TRUE(original.Run().ok());
  const std::vector<ResourceManager::NamedState> states = original.resources().States();
  ASSERT_EQ(states.size(), 1u);
  EXPECT_EQ(states[0].name, original.node().name());
  EXPECT_EQ(states[0].state->epoch(), 1);
  const RefPtr<State> copy = other.resources().States().at(0).state;
  ASSERT_EQ(copy->ApplyDelta(StateDelta::Whole(states[0].state->TakeSnapshot().value())),
            absl::OkStatus());
  EXPECT_EQ(Values<float>((*original.Run())[0]), Values<float>((*other.Run())[0]));
}

}  // namespace
}  // namespace muster
