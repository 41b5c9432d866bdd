#include "muster/graph/rewrite/optimize.h"
#include "muster/graph/rewrite/passes_test_util.h"

namespace muster {
namespace {

class ScaleCrossEntropyTest : public PassTest {
 protected:
  ScaleCrossEntropyTest()
      : device_(scope_.WithDevice("/device:GPU:0")),
        logits_(Placeholder(device_, "logits", DType::kFloat, {3, 4})),
        labels_(Placeholder(device_, "labels", DType::kInt64, {3})) {}

  // The loss, and its gradient times the constant.
  std::vector<Output> Losses(const Tensor& factor, absl::string_view name) {
    const Scope own = device_.NameScope(name);
    Node* const entropy =
        own.Add("SparseSoftmaxCrossEntropyWithLogits", {logits_, labels_}, {}, "entropy");
    const Output gradient =
        own.Op("PreventGradient", {entropy->output(1)}, {{"message", std::string()}}, "prevent");
    const Output scale =
        own.Op("Const", {}, {{"dtype", factor.dtype()}, {"value", factor}}, "scale");
    const Output product = own.Op("Mul", {scale, gradient}, {}, "product");
    return {own.Op("Square", {product}, {}, "dx"),
            own.Op("Square", {entropy->output(0)}, {}, "loss")};
  }
  static Tensor Column(std::vector<float> values) {
    Tensor column(DType::kFloat, Shape({static_cast<int64_t>(values.size()), 1}));
    std::copy(values.begin(), values.end(), column.data<float>());
    return column;
  }

  Scope device_;
  Output logits_, labels_;
};

TEST_F(ScaleCrossEntropyTest, OneFactorIsTaken) {
  Rewrite(ScaleCrossEntropy, {logits_, labels_}, Losses(Column({0.25F, 0.25F, 0.25F}), "mean"));
  const Output dx = Find("mean/dx")->input(0);
  EXPECT_EQ(dx.node->name(), "mean/entropy");
  EXPECT_EQ(dx.index, 1);
  EXPECT_EQ(dx.node->Attr<float>(kBackpropScale).value_or(0), 0.25F);
  EXPECT_EQ(Find("mean/loss")->input(0), Output(dx.node, 0));
}

TEST_F(ScaleCrossEntropyTest, SeveralFactorsStay) {
  Rewrite(ScaleCrossEntropy, {logits_, labels_}, Losses(Column({0.25F, 0.5F, 0.25F}), "weighted"));
  EXPECT_EQ(Find("weighted/dx")->input(0).node->op(), "Mul");
  // A row may make the result larger.
  Tensor row(DType::kFloat, Shape({1, 4}));
  std::fill_n(row.data<float>(), 4, 0.5F);
  Rewrite(ScaleCrossEntropy, {logits_, labels_}, Losses(row, "row"));
  EXPECT_EQ(Find("row/dx")->input(0).node->op(), "Mul");
}

}  // namespace
}  // namespace muster
