// Relu(FusedBatchNorm(x)) and Relu(FusedBatchNorm(x) + y) become _FusedBatchNormEx, as TensorFlow's
// remapper does for inference; here also where a gradient follows. What that reads of Relu is only
// its sign, which can be computed again of what the gradient of the normalisation reads anyway:
//
//   FusedBatchNormGrad(ReluGrad(dy, relu), x, ...) = MusterBatchNormReluGrad(dy, x, ..., offset)
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"

#include "muster/base/status.h"
#include "muster/graph/rewrite/passes.h"

namespace muster {
namespace {

bool IsBatchNorm(const Node& node) {
  return node.op() == "FusedBatchNorm" || node.op() == "FusedBatchNormV2" ||
         node.op() == "FusedBatchNormV3";
}
bool IsBatchNormGrad(const Node& node) {
  return node.op() == "FusedBatchNormGrad" || node.op() == "FusedBatchNormGradV2" ||
         node.op() == "FusedBatchNormGradV3";
}
bool IsSum(const Node& node) {
  return node.op() == "Add" || node.op() == "AddV2";
}

class BatchNormFuser {
 public:
  explicit BatchNormFuser(GraphRewriter& rewriter) : rewriter_(rewriter) {}

  absl::Status Run() {
    const std::vector<Node*> order = rewriter_.Order();
    for (size_t i = 0; i < order.size(); ++i) place_[order[i]] = i;
    for (Node* const node : order)
      if (node->op() == "Relu" && RunsOnGpu(*node)) RETURN_IF_ERROR(FuseInto(*node));
    for (Node* const node : order)
      if (IsBatchNormGrad(*node) && RunsOnGpu(*node)) RETURN_IF_ERROR(FuseGradient(*node));
    rewriter_.Commit();
    return absl::OkStatus();
  }

 private:
  struct Fused {
    Node* node;
    bool has_side_input;
  };

  static bool Is4D(const Node& node) {
    const std::string format = node.Attr<std::string>("data_format").value_or("");
    return format == "NHWC" || format == "NCHW";
  }
  // Nothing waits for the node, and it waits for nothing: its place in the order may change.
  bool IsFree(const Node& node) const {
    return rewriter_.num_waiting(node) == 0 && node.control_inputs().empty();
  }
  // The normalisation whose first output is read by `reader` alone.
  Node* NormalisationFor(const Output& output, const Node& reader) const {
    Node& node = *output.node;
    if (!IsBatchNorm(node) || output.index != 0 || node.device() != reader.device() ||
        !Is4D(node) || rewriter_.is_result(node))
      return nullptr;
    for (int i = 1; i < 5; ++i)
      if (node.input(i).base_dtype() != DType::kFloat) return nullptr;
    for (const Output& input : node.inputs())
      if (IsRef(input.dtype())) return nullptr;
    for (const Node::Consumer& consumer : node.consumers()) {
      if (consumer.node != &reader && consumer.output == 0) return nullptr;
    }
    return &node;
  }

  // The normalisation that Relu is behind, and what is added in between.
  struct Chain {
    Node* normalisation = nullptr;
    Node* sum = nullptr;
    Output side;
  };
  Chain FindChain(const Node& relu) const {
    if (rewriter_.is_result(relu) || !relu.control_inputs().empty()) return {};
    const Output input = relu.input(0);
    if (Node* const direct = NormalisationFor(input, relu)) return {direct, nullptr, {}};
    Node& sum = *input.node;
    if (!IsSum(sum) || sum.device() != relu.device() || !rewriter_.IsHidden(sum) || !IsFree(sum))
      return {};
    for (const int i : {0, 1}) {
      Node* const found = NormalisationFor(sum.input(i), sum);
      const Output side = sum.input(1 - i);
      // It takes the place of the normalisation: the other part must be there by then.
      if (found == nullptr || IsRef(side.dtype()) || !place_.contains(side.node) ||
          !place_.contains(found) || place_.at(side.node) > place_.at(found) || side.node == found)
        continue;
      const PartialShape& shape = side.shape();
      if (shape.fully_known() && sum.input(i).shape().fully_known() &&
          shape == sum.input(i).shape())
        return {found, &sum, side};
    }
    return {};
  }

  absl::Status FuseInto(Node& relu) {
    const Chain chain = FindChain(relu);
    if (chain.normalisation == nullptr) return absl::OkStatus();
    Node& old = *chain.normalisation;
    NodeSpec spec;
    spec.op = "_FusedBatchNormEx";
    spec.name = rewriter_.graph().UniqueName(absl::StrCat(relu.name(), "/with_batch_norm"));
    for (int i = 0; i < 5; ++i) spec.inputs.push_back(rewriter_.Input(old, i));
    std::vector<Output> sides;
    if (chain.sum != nullptr) sides.push_back(rewriter_.Resolve(chain.side));
    spec.attrs["num_side_inputs"] = static_cast<int64_t>(sides.size());
    spec.inputs.push_back(std::move(sides));
    CopyAttrs(old, {"epsilon", "exponential_avg_factor", "data_format", "is_training"}, spec);
    spec.attrs["T"] = relu.output_types()[0];
    spec.attrs["U"] = DType::kFloat;
    spec.attrs["activation_mode"] = std::string("Relu");
    spec.control_inputs = rewriter_.ControlInputs(old);
    const PartialShape shape = relu.output_shape(0);
    ASSIGN_OR_RETURN(Node* const fused, rewriter_.Add(old, std::move(spec)));
    fused->set_output_shape(0, shape);
    for (int i = 1; i < old.num_outputs(); ++i) {
      if (i < 5) fused->set_output_shape(i, old.output_shape(i));
      rewriter_.Replace(Output(&old, i), Output(fused, i));
    }
    rewriter_.Replace(Output(&relu, 0), Output(fused, 0));
    rewriter_.WaitInstead(old, {fused});
    rewriter_.WaitInstead(relu, {fused});
    fused_[&old] = {fused, chain.sum != nullptr};
    return absl::OkStatus();
  }

  absl::Status FuseGradient(Node& gradient) {
    Node& relu_grad = *gradient.input(0).node;
    const Output mean = gradient.input(3);
    if (relu_grad.op() != "ReluGrad" || relu_grad.device() != gradient.device() ||
        !rewriter_.IsHidden(relu_grad))
      return absl::OkStatus();
    const auto found = fused_.find(mean.node);
    if (found == fused_.end() || found->second.has_side_input || mean.index != 3 ||
        gradient.input(4) != Output(mean.node, 4) ||
        rewriter_.Input(relu_grad, 1) != Output(found->second.node, 0) ||
        !gradient.Attr<bool>("is_training").value_or(false) || !IsUnread(gradient, 3))
      return absl::OkStatus();
    const Node& fused = *found->second.node;
    NodeSpec spec;
    spec.op = "MusterBatchNormReluGrad";
    spec.name = rewriter_.graph().UniqueName(absl::StrCat(gradient.name(), "/with_relu"));
    spec.inputs.push_back(rewriter_.Input(relu_grad, 0));
    for (int i = 1; i < 5; ++i) spec.inputs.push_back(rewriter_.Input(gradient, i));
    spec.inputs.push_back(Output(found->second.node, 5));
    spec.inputs.push_back(rewriter_.Input(fused, 2));
    CopyAttrs(gradient, {"epsilon", "data_format", "is_training"}, spec);
    spec.attrs["T"] = gradient.output_types()[0];
    spec.control_inputs = rewriter_.ControlInputsOfAll({&gradient, &relu_grad});
    ASSIGN_OR_RETURN(Node* const node, rewriter_.Add(gradient, std::move(spec)));
    for (int i = 0; i < 3; ++i) {
      node->set_output_shape(i, gradient.output_shape(i));
      rewriter_.Replace(Output(&gradient, i), Output(node, i));
    }
    rewriter_.WaitInstead(gradient, {node});
    return absl::OkStatus();
  }

  // No output from `first` on is read, and the node is no result.
  bool IsUnread(const Node& node, int first) const {
    for (const Node::Consumer& consumer : node.consumers())
      if (consumer.output >= first) return false;
    return !rewriter_.is_result(node);
  }
  static void CopyAttrs(const Node& from, std::initializer_list<absl::string_view> names,
                        NodeSpec& to) {
    for (const absl::string_view name : names) {
      if (const AttrValue* const value = from.FindAttr(name))
        to.attrs.insert_or_assign(std::string(name), *value);
    }
  }

  GraphRewriter& rewriter_;
  absl::flat_hash_map<const Node*, size_t> place_;
  absl::flat_hash_map<const Node*, Fused> fused_;  // by the normalisation
};

}  // namespace

absl::Status FuseBatchNorm(GraphRewriter& rewriter) {
  return BatchNormFuser(rewriter).Run();
}

}  // namespace muster
