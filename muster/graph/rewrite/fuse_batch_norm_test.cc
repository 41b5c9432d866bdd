#include "muster/graph/rewrite/passes_test_util.h"

namespace muster {
namespace {

class FuseBatchNormTest : public PassTest {
 protected:
  FuseBatchNormTest()
      : device_(scope_.WithDevice("/device:GPU:0")),
        x_(Placeholder(device_, "x", DType::kFloat, {2, 3, 3, 4})),
        side_(Placeholder(device_, "side", DType::kFloat, {2, 3, 3, 4})),
        vector_(Placeholder(device_, "vector", DType::kFloat, {4})) {}

  Node* Normalise(const Scope& scope, absl::string_view name = "bn") {
    return scope.Add("FusedBatchNormV3", {x_, vector_, vector_, vector_, vector_},
                     {{"T", DType::kFloat}, {"U", DType::kFloat}}, name);
  }
  Output Gradient(Node* normalisation, Output dy) {
    Node* const node = device_.Add("FusedBatchNormGradV3",
                                   {dy, x_, vector_, normalisation->output(3),
                                    normalisation->output(4), normalisation->output(5)},
                                   {{"T", DType::kFloat}, {"U", DType::kFloat}}, "gradient");
    return node->output(0);
  }
  void RewriteFor(std::vector<Output> fetches) {
    Rewrite(FuseBatchNorm, {x_, side_, vector_}, std::move(fetches));
  }
  const Node* FindOp(absl::string_view op) const {
    for (const auto& node : step_->nodes())
      if (node->op() == op) return node.get();
    return nullptr;
  }

  Scope device_;
  Output x_, side_, vector_;
};

TEST_F(FuseBatchNormTest, TheGradientComputesTheSignAgain) {
  Node* const bn = Normalise(device_);
  const Output relu = device_.Op("Relu", {bn->output(0)}, {}, "relu");
  const Output dy = device_.Op("Square", {relu}, {}, "dy");
  const Output dx = Gradient(bn, device_.Op("ReluGrad", {dy, relu}, {}, "relu_grad"));
  RewriteFor({dx});
  const Node* const fused = FindOp("_FusedBatchNormEx");
  const Node* const gradient = FindOp("MusterBatchNormReluGrad");
  ASSERT_NE(fused, nullptr);
  ASSERT_NE(gradient, nullptr);
  EXPECT_EQ(*fused->Attr<std::string>("activation_mode"), "Relu");
  EXPECT_EQ(gradient->input(0).node->op(), "Square");
  EXPECT_EQ(gradient->input(3), Output(const_cast<Node*>(fused), 3));
  EXPECT_EQ(gradient->input(5), Output(const_cast<Node*>(fused), 5));
  for (absl::string_view op : {"Relu", "ReluGrad", "FusedBatchNormV3", "FusedBatchNormGradV3"})
    EXPECT_EQ(FindOp(op), nullptr) << op;
}

TEST_F(FuseBatchNormTest, ASumBetweenTheTwoIsTaken) {
  Node* const bn = Normalise(device_);
  const Output sum = device_.Op("AddV2", {side_, bn->output(0)}, {}, "sum");
  const Output relu = device_.Op("Relu", {sum}, {}, "relu");
  const Output dy = device_.Op("Square", {relu}, {}, "dy");
  const Output dx = Gradient(bn, device_.Op("ReluGrad", {dy, relu}, {}, "relu_grad"));
  RewriteFor({dx});
  const Node* const fused = FindOp("_FusedBatchNormEx");
  ASSERT_NE(fused, nullptr);
  EXPECT_EQ(fused->num_inputs(), 6);
  // The sign depends on what was added: it is read, not computed.
  EXPECT_EQ(FindOp("MusterBatchNormReluGrad"), nullptr);
  EXPECT_NE(FindOp("ReluGrad"), nullptr);
}

TEST_F(FuseBatchNormTest, WhatOthersSeeStays) {
  // The normalised values are fetched.
  Node* const bn = Normalise(device_);
  const Output relu = device_.Op("Relu", {bn->output(0)}, {}, "relu");
  RewriteFor({relu, bn->output(0)});
  EXPECT_EQ(FindOp("_FusedBatchNormEx"), nullptr);
  // What is added follows from the statistics of the normalisation itself.
  Node* const other = Normalise(device_, "other");
  const Output side = device_.Op("BiasAdd", {side_, other->output(1)}, {}, "biased");
  const Output sum = device_.Op("AddV2", {other->output(0), side}, {}, "sum");
  RewriteFor({device_.Op("Relu", {sum}, {}, "relu_of_sum")});
  EXPECT_EQ(FindOp("_FusedBatchNormEx"), nullptr);
  // Relu waits for something.
  Node* const third = Normalise(device_, "third");
  const Output waits = device_.WithControlDependencies({side.node})
                           .Op("Relu", {third->output(0)}, {}, "relu_that_waits");
  RewriteFor({waits});
  EXPECT_EQ(FindOp("_FusedBatchNormEx"), nullptr);
  // Not on a GPU.
  Node* const host = Normalise(scope_.WithDevice("/device:CPU:0"), "host");
  RewriteFor({scope_.WithDevice("/device:CPU:0").Op("Relu", {host->output(0)}, {}, "host_relu")});
  EXPECT_EQ(FindOp("_FusedBatchNormEx"), nullptr);
}

}  // namespace
}  // namespace muster
