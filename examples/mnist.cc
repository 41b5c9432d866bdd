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
using muster::Tensor;
using muster::TrainVariable;
namespace ops = muster::ops;

class Model {
 public:
  // Call once.
  absl::Status Build(const Scope& scope, double learning_rate) {
    images = ops::Placeholder(scope, DType::kFloat,
                              {.shape = PartialShape({-1, 784}), .name = "images"});
    labels =
        ops::Placeholder(scope, DType::kFloat, {.shape = PartialShape({-1, 10}), .name = "labels"});
    const Output hidden = ops::Relu(scope, AddLayer(scope, "hidden", images, 784, 100, 1.0 / 28));
    const Output logits = AddLayer(scope, "softmax", hidden, 100, 10, 0.1);
    const Output losses = ops::SoftmaxCrossEntropyWithLogits(scope, logits, labels).loss;
    loss = ops::Mean(scope, losses, scope.ConstVector({0}));
    const Output correct =
        ops::Equal(scope, ops::ArgMax(scope, logits, scope.ConstScalar<int32_t>(1)),
                   ops::ArgMax(scope, labels, scope.ConstScalar<int32_t>(1)));
    accuracy = ops::Mean(scope, ops::Cast(scope, correct, DType::kFloat), scope.ConstVector({0}));

    muster::AdamOptimizer adam(learning_rate);
    ASSIGN_OR_RETURN(train, adam.Minimize(scope, loss, variables_));
    variables_.insert(variables_.end(), adam.variables().begin(), adam.variables().end());
    ASSIGN_OR_RETURN(init, muster::Initializer(scope, variables_));
    return scope.status();
  }

  Output images, labels, loss, accuracy;
  Node* init = nullptr;
  Node* train = nullptr;

 private:
  // x * weights + biases.
  Output AddLayer(const Scope& scope, const std::string& name, Output x, int64_t inputs,
                  int64_t outputs, double stddev) {
    const Output weights =
        AddVariable(scope, name + "_weights",
                    muster::TruncatedNormal({inputs, outputs}, 0, stddev, DType::kFloat, 1));
    const Output biases = AddVariable(scope, name + "_biases", muster::Zeros({outputs}));
    return ops::BiasAdd(scope, ops::MatMul(scope, x, weights), biases);
  }

  Output AddVariable(const Scope& scope, const std::string& name,
                     const muster::InitialValue& initial) {
    absl::StatusOr<TrainVariable> variable = muster::MakeVariable(scope, name, initial);
    if (!variable.ok()) {
      scope.UpdateStatus(variable.status());
      return Output();
    }
    variables_.push_back(*variable);
    return muster::Value(scope, *variable);
  }

  std::vector<TrainVariable> variables_;
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
  Model model;
  if (absl::Status status = model.Build(Scope(graph), 0.002); !status.ok()) return status;
  absl::StatusOr<std::unique_ptr<muster::Session>> session = muster::Session::Create(graph);
  if (!session.ok()) return session.status();
  if (auto done = (*session)->Run({}, {}, {model.init}); !done.ok()) return done.status();

  constexpr int64_t kBatch = 100;
  const int64_t batches = images->dim(0) / kBatch;
  for (int step = 1; step <= steps; ++step) {
    // Batches are parts of the whole set: no copy.
    const int64_t begin = step % batches * kBatch;
    auto result = (*session)->Run({{model.images, images->Rows(begin, begin + kBatch)},
                                   {model.labels, labels->Rows(begin, begin + kBatch)}},
                                  {model.loss}, {model.train});
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
