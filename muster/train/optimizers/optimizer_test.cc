#include "muster/train/optimizers/optimizer.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/muster.h"
#include "muster/train/optimizers/definition.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::HasSubstr;

class OptimizerTest : public testing::Test {
 protected:
  TrainVariable Make(const std::string& name, std::vector<float> values, bool resource = false) {
    const int64_t size = static_cast<int64_t>(values.size());
    auto made = MakeVariable(scope_, name, Tensor::Of<float>(Shape({size, 1}), values),
                             {.use_resource = resource});
    EXPECT_TRUE(made.ok()) << made.status();
    return *made;
  }

  // The variable after `steps` steps.
  std::vector<float> Train(const Optimizer& optimizer, std::vector<TrainVariable> variables,
                           Node* train, const TrainVariable& read, int steps) {
    const std::vector<TrainVariable>& slots = optimizer.variables();
    variables.insert(variables.end(), slots.begin(), slots.end());
    auto init = Initializer(scope_, variables);
    EXPECT_TRUE(init.ok()) << init.status();
    const Output value = ReadValue(scope_, read);
    auto session = Session::Create(graph_);
    EXPECT_TRUE((*session)->Run({}, {}, {*init}).ok());
    for (int i = 0; i < steps; ++i) {
      auto done = (*session)->Run({}, {}, {train});
      EXPECT_TRUE(done.ok()) << done.status();
    }
    auto result = (*session)->Run({}, {value});
    EXPECT_TRUE(result.ok()) << result.status();
    const auto values = (*result)[0].values<float>();
    return {values.begin(), values.end()};
  }

  Graph graph_;
  Scope scope_{graph_};
};

TEST_F(OptimizerTest, RepeatedRowsAreSummed) {
  for (const bool resource : {false, true}) {
    const TrainVariable table = Make(resource ? "r" : "t", {1, 2, 3}, resource);
    IndexedSlices rows;
    rows.values = scope_.Const(Tensor::Of<float>(Shape({3, 1}), {1, 2, 4}));
    rows.indices = scope_.ConstVector({2, 0, 2});
    AdagradOptimizer adagrad(1.0, {.initial_accumulator_value = 11});
    auto train = adagrad.ApplyGradients(scope_, {{rows, table}});
    ASSERT_TRUE(train.ok()) << train.status();
    // Rows 0 and 2 move by g / sqrt(11 + g * g) with g = 2 and 5.
    EXPECT_THAT(Train(adagrad, {table}, *train, table, 1),
                ElementsAre(FloatNear(1 - 2 / std::sqrt(15.f), 1e-6f), 2,
                            FloatNear(3 - 5 / std::sqrt(36.f), 1e-6f)));
  }
}

TEST_F(OptimizerTest, SlotsAreNamedAsTensorFlowNamesThem) {
  const TrainVariable v = Make("v", {1});
  AdamOptimizer adam;
  ASSERT_TRUE(
      adam.ApplyGradients(scope_, {{scope_.Const(Tensor::Zeros(DType::kFloat, {1, 1})), v}}).ok());
  std::vector<std::string> names;
  for (const TrainVariable& variable : adam.variables()) names.push_back(variable.name());
  EXPECT_THAT(names, ElementsAre("beta1_power", "beta2_power", "v/Adam", "v/Adam_1"));
  EXPECT_EQ(adam.Slot(v, "m")->name(), "v/Adam");
  EXPECT_EQ(adam.Slot(v, "v")->name(), "v/Adam_1");
  EXPECT_EQ(adam.Slot(v, "w").status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(adam.Slot(v, "m")->node().ColocationGroups(), ElementsAre("v"));
}

TEST_F(OptimizerTest, SlotsOfASliceAreSlices) {
  TrainVariable part = Make("w/part_0", {1, 2});
  part.save_slice = SaveSlice{"w", {5, 1}, {0, 0}, {2, 1}};
  MomentumOptimizer momentum(0.1, 0.9);
  const Output gradient = scope_.Const(Tensor::Zeros(DType::kFloat, {2, 1}));
  ASSERT_TRUE(momentum.ApplyGradients(scope_, {{gradient, part}}).ok());
  const auto slot = momentum.Slot(part, "momentum");
  ASSERT_TRUE(slot.ok());
  EXPECT_EQ(slot->name(), "w/part_0/Momentum");
  EXPECT_EQ(slot->save_slice->full_name, "w/Momentum");
  EXPECT_EQ(slot->save_slice->Spec(), "5 1 0,2:0,1");
}

TEST_F(OptimizerTest, AnOptimizerOfTheProgramsOwn) {
  class Sign : public Optimizer {
   public:
    Sign() : Optimizer("Sign", false) { AddHyperparameter("learning_rate", 0.5); }
    absl::StatusOr<Node*> ApplyDense(const Scope& scope, Output gradient,
                                     const TrainVariable& variable) override {
      const Output sign = scope.Op("Sign", {gradient});
      const Output step = Times(scope, Hyper(scope, "learning_rate", variable.dtype), sign);
      Node* update = Assign(scope, variable, step, "AssignSub").node;
      RETURN_IF_ERROR(scope.status());
      return update;
    }
    absl::StatusOr<Node*> ApplySparse(const Scope&, const IndexedSlices&,
                                      const TrainVariable&) override {
      return Unimplemented("sparse gradients");
    }
  };
  const TrainVariable v = Make("v", {1, -1});
  Sign sign;
  auto train = sign.Minimize(
      scope_, ops::Sum(scope_, ops::Square(scope_, v.snapshot), scope_.ConstVector({0, 1})), {v});
  ASSERT_TRUE(train.ok()) << train.status();
  EXPECT_EQ((*train)->name(), "Sign");
  EXPECT_THAT(Train(sign, {v}, *train, v, 1), ElementsAre(0.5f, -0.5f));
}

// variable -= learning_rate * sign(gradient), or, upwards, +=.
absl::StatusOr<Node*> ApplySign(DefinedOptimizer& sign, const Scope& scope, Output gradient,
                                const TrainVariable& variable) {
  const Output rate = sign.Hyper(scope, "learning_rate", variable.dtype);
  const Output step = Times(scope, rate, scope.Op("Sign", {gradient}));
  const char* const op = sign.Flag("upwards") ? "AssignAdd" : "AssignSub";
  Node* const update = Assign(scope, variable, step, op).node;
  RETURN_IF_ERROR(scope.status());
  return update;
}

DEFINE_OPTIMIZER(TestSign) {
  optimizer.Doc("Steps of one length.")
      .Tensor("learning_rate", kRequired, "The length.")
      .Number("limit", 1.0, "Not used.")
      .Flag("upwards", false, "Whether the loss is to grow.")
      .Check([](const DefinedOptimizer& sign) { return CheckPositive(sign, "limit"); })
      .Rule({.slots = {{"last"}}, .hypers = {{"learning_rate"}}})
      .Dense(ApplySign);
}

TEST_F(OptimizerTest, ADefinitionIsAllThatAnOptimizerNeeds) {
  const OptimizerDef* const def = OptimizerRegistry::Find("TestSign");
  ASSERT_NE(def, nullptr);
  std::vector<std::string> parameters;
  for (const OptimizerParameter& parameter : def->parameters()) {
    parameters.push_back(parameter.name);
  }
  EXPECT_THAT(parameters, ElementsAre("learning_rate", "limit", "upwards", "use_locking", "name"));
  const TrainVariable v = Make("v", {1, -1});
  const Output loss = ops::Sum(scope_, ops::Square(scope_, v.snapshot), scope_.ConstVector({0, 1}));
  DefinedOptimizer down(*def, {0.5, 1.0, false, false, "Down"});
  auto train = down.Minimize(scope_, loss, {v});
  ASSERT_TRUE(train.ok()) << train.status();
  EXPECT_EQ((*train)->name(), "Down");
  EXPECT_EQ(down.Slot(v, "last")->name(), "v/Down");
  EXPECT_THAT(Train(down, {v}, *train, v, 1), ElementsAre(0.5f, -0.5f));
  DefinedOptimizer up("TestSign", {0.5, 1.0, true, false, "Up"});
  train = up.Minimize(scope_, loss, {v});
  ASSERT_TRUE(train.ok()) << train.status();
  EXPECT_THAT(Train(up, {v}, *train, v, 1), ElementsAre(1.5f, -1.5f));
  const IndexedSlices rows{loss, scope_.ConstVector({0}), Output()};
  const absl::Status sparse = up.ApplySparse(scope_, rows, v).status();
  EXPECT_EQ(sparse.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(sparse.message(), "TestSignOptimizer does not apply sparse gradients ('v')");
}

TEST_F(OptimizerTest, ValuesThatAreNotAllowedAreRefusedWhenGradientsAreApplied) {
  const TrainVariable v = Make("v", {1});
  const Output gradient = scope_.Const(Tensor::Zeros(DType::kFloat, {1, 1}));
  const auto error = [&](Optimizer&& optimizer) {
    return std::string(optimizer.ApplyGradients(scope_, {{gradient, v}}).status().message());
  };
  EXPECT_EQ(error(AdagradOptimizer(0.1, {.initial_accumulator_value = 0})),
            "initial_accumulator_value must be positive: 0.0");
  EXPECT_EQ(error(FtrlOptimizer(0.1, {.l1_regularization_strength = -1})),
            "l1_regularization_strength -1.000000 needs to be positive or zero");
  EXPECT_EQ(error(AdamOptimizer(0.1, {.name = ""})), "Must specify the optimizer name");
  EXPECT_EQ(error(DefinedOptimizer("TestSign", {0.5, gradient, true, false, "Sign"})),
            "TestSignOptimizer: limit must be a number");
  EXPECT_EQ(OptimizerRegistry::Find("Adamm"), nullptr);
}

TEST_F(OptimizerTest, ErrorsSayWhatIsMissing) {
  GradientDescentOptimizer descent(0.1);
  const TrainVariable v = Make("v", {1});
  const Output loss = ops::Sum(scope_, v.snapshot, scope_.ConstVector({0, 1}));
  EXPECT_EQ(descent.Minimize(scope_, loss, {}).status().message(), "No variables to optimize.");
  EXPECT_EQ(descent.ApplyGradients(scope_, {}).status().message(), "No variables provided.");
  EXPECT_THAT(std::string(descent.ApplyGradients(scope_, {{Gradient(), v}}).status().message()),
              HasSubstr("No gradients provided for any variable: v:0"));
  const Output other = scope_.ConstScalar<float>(1);
  EXPECT_THAT(std::string(descent.Minimize(scope_, other, {v}).status().message()),
              HasSubstr("check your graph for ops that do not support gradients"));
  const Output count = scope_.ConstScalar<int32_t>(1);
  EXPECT_THAT(std::string(descent.Minimize(scope_, count, {v}).status().message()),
              HasSubstr("Invalid type int32"));
  // Rates of another type are cast; gradients are not.
  const Output wrong = scope_.Const(Tensor::Zeros(DType::kDouble, {1, 1}));
  EXPECT_FALSE(descent.ApplyGradients(scope_, {{wrong, v}}).ok());
}

TEST_F(OptimizerTest, MovingAveragesOfVariablesAndTensors) {
  const TrainVariable v = Make("v", {4});
  const Output t = ops::Mul(scope_, v.snapshot, scope_.ConstScalar<float>(2), {.name = "t"});
  MovingAverageOptions options;
  options.zero_debias = true;
  ExponentialMovingAverage average(0.75, options);
  auto update = average.Apply(scope_, {v, t});
  ASSERT_TRUE(update.ok()) << update.status();
  EXPECT_EQ(average.Average(v)->name(), "v/ExponentialMovingAverage");
  EXPECT_EQ(average.Average(t)->name(), "t/ExponentialMovingAverage");
  std::vector<TrainVariable> all = average.variables();
  all.push_back(v);
  const Node* init = *Initializer(scope_, all);
  const Output v_average = ReadValue(scope_, *average.Average(v));
  const Output t_average = ReadValue(scope_, *average.Average(t));
  auto session = Session::Create(graph_);
  ASSERT_TRUE((*session)->Run({}, {}, {const_cast<Node*>(init)}).ok());
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE((*session)->Run({}, {}, {*update}).ok());
    auto values = (*session)->Run({}, {v_average, t_average});
    ASSERT_TRUE(values.ok()) << values.status();
    // Starting at zero is divided out.
    EXPECT_FLOAT_EQ((*values)[0].scalar<float>(), 4);
    EXPECT_FLOAT_EQ((*values)[1].scalar<float>(), 8);
  }
  EXPECT_FALSE(average.Apply(scope_, {scope_.ConstScalar<int32_t>(1)}).ok());
}

TEST_F(OptimizerTest, PiecewiseConstantChoosesByBoundary) {
  const Output x = ops::Placeholder(scope_, DType::kInt64, {.shape = PartialShape::Scalar()});
  auto rate = PiecewiseConstant(scope_, x, {10, 20}, {0.5, 0.25, 0.125});
  ASSERT_TRUE(rate.ok()) << rate.status();
  auto session = Session::Create(graph_);
  for (const auto& [at, expected] : std::vector<std::pair<int64_t, float>>{
           {0, 0.5f}, {10, 0.5f}, {11, 0.25f}, {20, 0.25f}, {21, 0.125f}}) {
    auto result = (*session)->Run({{x, Tensor::Scalar<int64_t>(at)}}, {*rate});
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ((*result)[0].scalar<float>(), expected);
  }
  EXPECT_FALSE(PiecewiseConstant(scope_, x, {10}, {0.5}).ok());
  EXPECT_FALSE(PiecewiseConstant(scope_, x, {10.5}, {0.5, 0.25}).ok());
}

TEST_F(OptimizerTest, VariablesAreSpreadOverParameterServers) {
  const auto devices = [&](PlacementStrategy strategy, const std::string& prefix) {
    ReplicaDeviceOptions options;
    options.worker_device = "/job:worker/task:3";
    options.strategy = std::move(strategy);
    const Scope spread = scope_.WithDeviceFunction(ReplicaDeviceSetter(2, std::move(options)));
    std::vector<std::string> found;
    for (int i = 0; i < 3; ++i) {
      auto made = MakeVariable(spread, prefix + std::to_string(i),
                               Zeros(Shape({i == 0 ? 100 : 1}), DType::kFloat));
      EXPECT_TRUE(made.ok()) << made.status();
      EXPECT_EQ(made->initializer->device(), made->node().device());
      found.push_back(made->node().device());
    }
    found.push_back(spread.ConstScalar<float>(1).node->device());
    found.push_back(spread.WithDevice("/device:CPU:1").ConstScalar<float>(1).node->device());
    return found;
  };
  EXPECT_THAT(devices({}, "r"),
              ElementsAre("/job:ps/task:0", "/job:ps/task:1", "/job:ps/task:0",
                          "/job:worker/task:3", "/job:worker/task:3/device:CPU:1"));
  EXPECT_THAT(devices(GreedyLoadBalancing(2), "g"),
              ElementsAre("/job:ps/task:0", "/job:ps/task:1", "/job:ps/task:1",
                          "/job:worker/task:3", "/job:worker/task:3/device:CPU:1"));
}

TEST_F(OptimizerTest, UninitializedVariablesAreReported) {
  const TrainVariable a = Make("a", {1}), b = Make("b", {2}, true);
  auto report = ReportUninitialized(scope_, {a, b});
  ASSERT_TRUE(report.ok()) << report.status();
  auto session = Session::Create(graph_);
  auto names = (*session)->Run({}, {*report});
  ASSERT_TRUE(names.ok()) << names.status();
  EXPECT_THAT((*names)[0].values<std::string>(), ElementsAre("a", "b"));
  ASSERT_TRUE((*session)->Run({}, {}, {a.initializer}).ok());
  names = (*session)->Run({}, {*report});
  EXPECT_THAT((*names)[0].values<std::string>(), ElementsAre("b"));
}

}  // namespace
}  // namespace muster
