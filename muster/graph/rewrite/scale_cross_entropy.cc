// The mean of losses gives the gradient of each the same factor: the op that computes the gradients
// multiplies by it.
//
//   Mul(factor, CrossEntropy.backprop) = CrossEntropy(factor).backprop
#include "muster/base/status.h"
#include "muster/graph/rewrite/optimize.h"
#include "muster/graph/rewrite/passes.h"

namespace muster {
namespace {

// The one value of a constant that scales matrices as a number would.
std::optional<float> ScaleOf(const Output& factor, const PartialShape& matrix) {
  const Tensor* const value = ConstValue(*factor.node);
  if (value == nullptr || value->dtype() != DType::kFloat || value->num_elements() == 0)
    return std::nullopt;
  const Shape& shape = value->shape();
  const bool is_column =
      shape.rank() == 2 && shape.dim(1) == 1 && (shape.dim(0) == 1 || shape.dim(0) == matrix[0]);
  if (shape.rank() != 0 && !is_column) return std::nullopt;
  const float* const numbers = value->data<float>();
  for (int64_t i = 1; i < value->num_elements(); ++i)
    if (!(numbers[i] == numbers[0])) return std::nullopt;
  return numbers[0];
}

class CrossEntropyScaler {
 public:
  explicit CrossEntropyScaler(GraphRewriter& rewriter) : rewriter_(rewriter) {}

  absl::Status Run() {
    for (Node* const node : rewriter_.Order()) {
      if (node->op() != "Mul" || !RunsOnGpu(*node) || rewriter_.is_result(*node) ||
          !node->control_inputs().empty())
        continue;
      for (const int i : {0, 1}) {
        Node* const entropy = EntropyBehind(node->input(i), *node);
        if (entropy == nullptr || node->output_types()[0] != DType::kFloat) continue;
        const std::optional<float> scale = ScaleOf(node->input(1 - i), entropy->output_shape(1));
        if (!scale) continue;
        RETURN_IF_ERROR(Replace(*node, *entropy, *scale));
        break;
      }
    }
    rewriter_.Commit();
    return absl::OkStatus();
  }

 private:
  // The cross entropy whose gradient `reader` alone reads.
  Node* EntropyBehind(const Output& output, const Node& reader) const {
    Node* node = output.node;
    int index = output.index;
    while ((node->op() == "PreventGradient" || node->op() == "Identity") &&
           rewriter_.IsHidden(*node) && node->control_inputs().empty() &&
           node->device() == reader.device()) {
      index = node->input(0).index;
      node = node->input(0).node;
    }
    if ((node->op() != "SparseSoftmaxCrossEntropyWithLogits" &&
         node->op() != "SoftmaxCrossEntropyWithLogits") ||
        index != 1 || node->device() != reader.device() || rewriter_.is_result(*node) ||
        !node->output_shape(1).known_rank() || node->output_shape(1).rank() != 2 ||
        node->FindAttr(kBackpropScale) != nullptr)
      return nullptr;
    int readers = 0;
    for (const Node::Consumer& consumer : node->consumers()) readers += consumer.output == 1;
    return readers == 1 ? node : nullptr;
  }

  absl::Status Replace(Node& product, Node& entropy, float scale) {
    NodeSpec spec;
    spec.op = entropy.op();
    spec.attrs = entropy.attrs();
    spec.attrs[kBackpropScale] = scale;
    for (const int i : {0, 1}) spec.inputs.push_back(rewriter_.Input(entropy, i));
    spec.control_inputs = rewriter_.ControlInputs(entropy);
    const PartialShape shapes[] = {entropy.output_shape(0), entropy.output_shape(1)};
    ASSIGN_OR_RETURN(Node* const scaled, rewriter_.Substitute(entropy, std::move(spec)));
    for (const int i : {0, 1}) scaled->set_output_shape(i, shapes[i]);
    rewriter_.Replace(Output(&product, 0), Output(scaled, 1));
    rewriter_.WaitInstead(product, {scaled});
    return absl::OkStatus();
  }

  GraphRewriter& rewriter_;
};

}  // namespace

absl::Status ScaleCrossEntropy(GraphRewriter& rewriter) {
  return CrossEntropyScaler(rewriter).Run();
}

}  // namespace muster
