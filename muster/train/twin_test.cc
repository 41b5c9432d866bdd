// A network built and trained in C++ alone has the nodes and the losses of its Python twin,
// tests/train/twin.py.
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/base/json.h"
#include "muster/muster.h"

namespace muster {
namespace {

constexpr int kRows = 6, kInputs = 4, kHidden = 5, kClasses = 3;

struct TwinCase {
  std::string optimizer;
  bool resource;
  std::string title() const { return optimizer + (resource ? " resource" : " ref"); }
};

Tensor Pattern(int rows, int columns, float scale) {
  Tensor tensor(DType::kFloat, Shape({rows, columns}));
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < columns; ++j) {
      tensor.data<float>()[i * columns + j] = static_cast<float>((7 * i + 3 * j) % 11 - 5) * scale;
    }
  }
  return tensor;
}

struct Network {
  Output x, y, loss;
  Node* train = nullptr;
  Node* init = nullptr;
};

absl::StatusOr<Network> Build(const Scope& scope, const TwinCase& twin) {
  Network net;
  net.x =
      ops::Placeholder(scope, DType::kFloat, {.shape = PartialShape({-1, kInputs}), .name = "x"});
  net.y =
      ops::Placeholder(scope, DType::kFloat, {.shape = PartialShape({-1, kClasses}), .name = "y"});
  const VariableOptions options{.use_resource = twin.resource};
  std::vector<TrainVariable> variables(4);
  ASSIGN_OR_RETURN(variables[0],
                   MakeVariable(scope, "w1", Pattern(kInputs, kHidden, 0.125f), options));
  ASSIGN_OR_RETURN(variables[1], MakeVariable(scope, "b1", Zeros({kHidden}), options));
  ASSIGN_OR_RETURN(variables[2],
                   MakeVariable(scope, "w2", Pattern(kHidden, kClasses, 0.0625f), options));
  ASSIGN_OR_RETURN(variables[3], MakeVariable(scope, "b2", Constant(0.5, {kClasses}), options));
  ASSIGN_OR_RETURN(const TrainVariable step, MakeGlobalStep(scope, twin.resource));
  // One statement per node: the order of nodes is the order of statements.
  const auto layer = [&](Output input, const TrainVariable& weights, const TrainVariable& biases) {
    const Output product = ops::MatMul(scope, input, Value(scope, weights));
    return ops::BiasAdd(scope, product, Value(scope, biases));
  };
  const Output hidden = layer(net.x, variables[0], variables[1]);
  const Output logits = layer(ops::Relu(scope, hidden), variables[2], variables[3]);
  const Output losses = ops::SoftmaxCrossEntropyWithLogits(scope, logits, net.y).loss;
  net.loss = ops::Mean(scope, losses, scope.ConstVector({0}, "axis"));
  std::unique_ptr<Optimizer> optimizer;
  if (twin.optimizer == "adam") {
    optimizer = std::make_unique<AdamOptimizer>(0.05);
  } else {
    ASSIGN_OR_RETURN(const Output rate, ExponentialDecay(scope, 0.5, step, 10, 0.5, true));
    MomentumOptions momentum;
    momentum.use_nesterov = true;
    optimizer = std::make_unique<MomentumOptimizer>(rate, 0.9, momentum);
  }
  ASSIGN_OR_RETURN(net.train,
                   optimizer->Minimize(scope, net.loss, variables, {.global_step = step}));
  variables.push_back(step);
  variables.insert(variables.end(), optimizer->variables().begin(), optimizer->variables().end());
  ASSIGN_OR_RETURN(net.init, Initializer(scope, variables));
  RETURN_IF_ERROR(scope.status());
  return net;
}

Json Said() {
  std::ifstream file(MUSTER_TRAIN_TWIN);
  std::stringstream text;
  text << file.rdbuf();
  absl::StatusOr<Json> said = Json::Parse(text.str());
  EXPECT_TRUE(said.ok()) << said.status();
  return said.ok() ? *said : Json();
}

class Twin : public testing::TestWithParam<TwinCase> {};

TEST_P(Twin, HasTheNodesOfPython) {
  Graph graph;
  const absl::StatusOr<Network> net = Build(Scope(graph), GetParam());
  ASSERT_TRUE(net.ok()) << net.status();
  const Json said = Said();
  const Json::List& expected = *said.Find("nodes")->Find(GetParam().title())->list();
  for (size_t i = 0; i < std::min<size_t>(expected.size(), graph.nodes().size()); ++i) {
    const Node& node = *graph.nodes()[i];
    std::vector<std::string> mine = {node.name(), node.op()};
    for (const Output& input : node.inputs()) mine.push_back(input.name());
    for (const Node* before : node.control_inputs()) mine.push_back("^" + before->name());
    std::vector<std::string> theirs;
    for (const Json& word : *expected[i].list()) theirs.push_back(*word.string());
    ASSERT_EQ(mine, theirs) << "node " << i;
  }
  EXPECT_EQ(graph.nodes().size(), expected.size());
}

TEST_P(Twin, HasTheLossesOfTensorFlow) {
  Graph graph;
  const absl::StatusOr<Network> net = Build(Scope(graph), GetParam());
  ASSERT_TRUE(net.ok()) << net.status();
  auto session = Session::Create(graph);
  ASSERT_TRUE(session.ok()) << session.status();
  ASSERT_TRUE((*session)->Run({}, {}, {net->init}).ok());
  Tensor labels = Tensor::Zeros(DType::kFloat, Shape({kRows, kClasses}));
  for (int i = 0; i < kRows; ++i) labels.data<float>()[i * kClasses + i % kClasses] = 1;
  const Json said = Said();
  for (const Json& expected : *said.Find("losses")->Find(GetParam().title())->list()) {
    const auto result = (*session)->Run(
        {{net->x, Pattern(kRows, kInputs, 0.25f)}, {net->y, labels}}, {net->loss}, {net->train});
    ASSERT_TRUE(result.ok()) << result.status();
    ASSERT_NEAR((*result)[0].scalar<float>(), *expected.number(), 4e-6);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Twin,
                         testing::Values(TwinCase{"adam", false}, TwinCase{"adam", true},
                                         TwinCase{"momentum", false}, TwinCase{"momentum", true}),
                         [](const testing::TestParamInfo<TwinCase>& twin) {
                           return twin.param.optimizer + (twin.param.resource ? "Resource" : "Ref");
                         });

}  // namespace
}  // namespace muster
