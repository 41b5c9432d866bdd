// Trains a network with one hidden layer on handwritten digits: the C++ twin of mnist.py.
//
//   mnist_cc DATA_DIR [STEPS]
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "idx_reader.h"

#include "muster/muster.h"

namespace {

using muster::DType;
using muster::Node;
using muster::Output;
using muster::PartialShape;
using muster::Scope;
using muster::Shape;
using muster::Tensor;
namespace ops = muster::ops;

// A variable with its initial value and what Adam keeps beside it.
struct Parameter {
  Output variable;
  Output m;
  Output v;
};

class Model {
 public:
  explicit Model(const Scope& scope) : scope_(scope) {
    images = ops::Placeholder(scope, DType::kFloat,
                              {.shape = PartialShape({-1, 784}), .name = "images"});
    labels =
        ops::Placeholder(scope, DType::kFloat, {.shape = PartialShape({-1, 10}), .name = "labels"});
    const Output hidden_weights = AddParameter("hidden_weights", {784, 100}, 1.0f / 28);
    const Output hidden_biases = AddParameter("hidden_biases", {100}, 0);
    const Output softmax_weights = AddParameter("softmax_weights", {100, 10}, 0.1f);
    const Output softmax_biases = AddParameter("softmax_biases", {10}, 0);
    const Output hidden = ops::Relu(
        scope, ops::BiasAdd(scope, ops::MatMul(scope, images, hidden_weights), hidden_biases));
    logits = ops::BiasAdd(scope, ops::MatMul(scope, hidden, softmax_weights), softmax_biases);
    const Output losses = ops::SoftmaxCrossEntropyWithLogits(scope, logits, labels).loss;
    loss = ops::Mean(scope, losses, scope.ConstVector({0}));
    const Output correct =
        ops::Equal(scope, ops::ArgMax(scope, logits, scope.ConstScalar<int32_t>(1)),
                   ops::ArgMax(scope, labels, scope.ConstScalar<int32_t>(1)));
    accuracy = ops::Mean(scope, ops::Cast(scope, correct, DType::kFloat), scope.ConstVector({0}));
  }

  // Adam over all parameters; call once.
  absl::Status AddTraining(float learning_rate) {
    std::vector<Output> xs;
    for (const Parameter& parameter : parameters_) xs.push_back(parameter.variable);
    absl::StatusOr<std::vector<muster::Gradient>> gradients = muster::Gradients(scope_, {loss}, xs);
    if (!gradients.ok()) return gradients.status();
    const float beta1 = 0.9f, beta2 = 0.999f;
    const Output beta1_power =
        AddState("beta1_power", PartialShape::Scalar(), Tensor::Scalar<float>(beta1));
    const Output beta2_power =
        AddState("beta2_power", PartialShape::Scalar(), Tensor::Scalar<float>(beta2));
    const auto number = [&](float value) { return scope_.ConstScalar<float>(value); };
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const Parameter& p = parameters_[i];
      train.push_back(ops::ApplyAdam(scope_, p.variable, p.m, p.v, beta1_power, beta2_power,
                                     number(learning_rate), number(beta1), number(beta2),
                                     number(1e-8f), std::get<Output>((*gradients)[i]))
                          .node);
    }
    // The powers move on when every parameter has used them.
    const Scope after = scope_.WithControlDependencies(train);
    train.push_back(
        ops::Assign(after, beta1_power, ops::Mul(after, beta1_power, number(beta1))).node);
    train.push_back(
        ops::Assign(after, beta2_power, ops::Mul(after, beta2_power, number(beta2))).node);
    return scope_.status();
  }

  Output images, labels, logits, loss, accuracy;
  std::vector<Node*> initializers;
  std::vector<Node*> train;

 private:
  Output AddState(const std::string& name, PartialShape shape, Tensor initial) {
    const Output variable = ops::VariableV2(scope_, shape, DType::kFloat, {.name = name});
    initializers.push_back(ops::Assign(scope_, variable, scope_.Const(std::move(initial))).node);
    return variable;
  }

  Output AddParameter(const std::string& name, Shape shape, float stddev) {
    Parameter parameter;
    parameter.variable =
        ops::VariableV2(scope_, PartialShape(shape), DType::kFloat, {.name = name});
    const std::vector<int32_t> dims(shape.dims().begin(), shape.dims().end());
    const Output noise = ops::TruncatedNormal(scope_, scope_.ConstVector(dims), DType::kFloat,
                                              {.seed = 1, .seed2 = 1});
    const Output value = ops::Mul(scope_, noise, scope_.ConstScalar<float>(stddev));
    initializers.push_back(ops::Assign(scope_, parameter.variable, value).node);
    parameter.m = AddState(name + "/m", PartialShape(shape), Tensor::Zeros(DType::kFloat, shape));
    parameter.v = AddState(name + "/v", PartialShape(shape), Tensor::Zeros(DType::kFloat, shape));
    parameters_.push_back(parameter);
    return ops::Identity(scope_, parameter.variable);
  }

  Scope scope_;
  std::vector<Parameter> parameters_;
};

absl::Status Train(const std::string& folder, int steps) {
  absl::StatusOr<Tensor> images = ReadImages(folder + "/train-images-idx3-ubyte.gz");
  absl::StatusOr<Tensor> labels = ReadLabels(folder + "/train-labels-idx1-ubyte.gz");
  absl::StatusOr<Tensor> test_images = ReadImages(folder + "/t10k-images-idx3-ubyte.gz");
  absl::StatusOr<Tensor> test_labels = ReadLabels(folder + "/t10k-labels-idx1-ubyte.gz");
  for (const absl::Status& status :
       {images.status(), labels.status(), test_images.status(), test_labels.status()}) {
    if (!status.ok()) return status;
  }
  muster::Graph graph;
  Scope scope(graph);
  Model model(scope);
  if (absl::Status status = model.AddTraining(0.002f); !status.ok()) return status;
  absl::StatusOr<std::unique_ptr<muster::Session>> session = muster::Session::Create(graph);
  if (!session.ok()) return session.status();
  if (auto done = (*session)->Run({}, {}, model.initializers); !done.ok()) return done.status();

  constexpr int64_t kBatch = 100;
  const int64_t batches = images->dim(0) / kBatch;
  for (int step = 1; step <= steps; ++step) {
    // Batches are parts of the whole set: no copy.
    const int64_t begin = step % batches * kBatch;
    auto result = (*session)->Run({{model.images, images->Rows(begin, begin + kBatch)},
                                   {model.labels, labels->Rows(begin, begin + kBatch)}},
                                  {model.loss}, model.train);
    if (!result.ok()) return result.status();
    if (step % 100 != 0 && step != steps) continue;
    auto accuracy = (*session)->Run({{model.images, *test_images}, {model.labels, *test_labels}},
                                    {model.accuracy});
    if (!accuracy.ok()) return accuracy.status();
    std::printf("step %5d  loss %.4f  test accuracy %.4f\n", step, (*result)[0].scalar<float>(),
                (*accuracy)[0].scalar<float>());
  }
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    std::fprintf(stderr, "usage: %s DATA_DIR [STEPS]\n", argv[0]);
    return 2;
  }
  const absl::Status status = Train(argv[1], argc == 3 ? std::atoi(argv[2]) : 1500);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
