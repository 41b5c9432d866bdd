// The gradient of a vector that was added to each row of a matrix: Sum over the rows becomes
// BiasAddGrad, whose kernel for GPUs is made for it. Where Relu was behind the addition, its
// gradient is computed in the same pass:
//
//   BiasAddGrad(ReluGrad(dy, y)) = MusterReluBiasGrad(dy, y), whose other output is ReluGrad
//
// and where a small product reads what is summed, with that:
//
//   MatMul(x, dy, transpose_a), BiasAddGrad(dy) = MusterProductAndColumns(x, dy, transpose_a)
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"

#include "muster/base/status.h"
#include "muster/graph/rewrite/optimize.h"
#include "muster/graph/rewrite/passes.h"

namespace muster {
namespace {

bool IsFirstAxis(const Tensor* axes) {
  if (axes == nullptr || axes->num_elements() != 1) return false;
  return (axes->dtype() == DType::kInt32 && axes->data<int32_t>()[0] == 0) ||
         (axes->dtype() == DType::kInt64 && axes->data<int64_t>()[0] == 0);
}

bool SumsColumns(const Node& node) {
  if (node.op() != "Sum" || !RunsOnGpu(node) || node.Attr<bool>("keep_dims").value_or(true) ||
      !IsFirstAxis(ConstValue(*node.input(1).node)) || IsRef(node.input(0).dtype()))
    return false;
  const PartialShape& shape = node.input(0).shape();
  const DType type = node.output_types()[0];
  return shape.known_rank() && shape.rank() == 2 &&
         (type == DType::kFloat || type == DType::kHalf || type == DType::kBfloat16);
}

// Whether the node sums what a ReluGrad gives, and both can be one node in the place of that one.
bool SumsReluGrad(const GraphRewriter& rewriter, const Node& node) {
  if (node.op() != "BiasAddGrad" || !RunsOnGpu(node) || !node.control_inputs().empty())
    return false;
  const Node& relu = *node.input(0).node;
  const DType type = node.output_types()[0];
  return relu.op() == "ReluGrad" && relu.device() == node.device() && !rewriter.is_result(relu) &&
         !rewriter.is_result(node) &&
         (type == DType::kFloat || type == DType::kHalf || type == DType::kBfloat16 ||
          type == DType::kDouble);
}

// The small product x' dy that sums of the columns of dy can be computed with; null where there is
// none. `place` is where nodes are in the order.
Node* ProductOf(const GraphRewriter& rewriter, const Node& sum,
                const absl::flat_hash_map<const Node*, size_t>& place) {
  if (sum.op() != "BiasAddGrad" || !RunsOnGpu(sum) || !sum.control_inputs().empty() ||
      rewriter.is_result(sum) || sum.output_types()[0] != DType::kFloat ||
      sum.Attr<std::string>("data_format").value_or("") != "NHWC")
    return nullptr;
  const Output dy = sum.input(0);
  for (const Node::Consumer& consumer : dy.node->consumers()) {
    Node& product = *consumer.node;
    if (consumer.output != dy.index || consumer.input != 1 || product.op() != "MatMul" ||
        product.device() != sum.device() || !product.control_inputs().empty() ||
        rewriter.is_result(product) || !product.Attr<bool>("transpose_a").value_or(false) ||
        product.Attr<bool>("transpose_b").value_or(true))
      continue;
    const Output x = product.input(0);
    const PartialShape& a = x.shape();
    const PartialShape& b = dy.shape();
    const bool is_small = a.fully_known() && b.fully_known() && a.rank() == 2 && b.rank() == 2 &&
                          a[0] == b[0] && a[0] > 0 && a[0] <= kMostInnerOfSmallProducts &&
                          a[1] * b[1] > 0 && a[1] * b[1] <= kMostElementsOfSmallProducts;
    // x must be there where the sum was, so that it cannot depend on it.
    if (is_small && !IsRef(x.dtype()) && !IsRef(dy.dtype()) && place.contains(x.node) &&
        place.at(x.node) < place.at(&sum))
      return &product;
  }
  return nullptr;
}

}  // namespace

absl::Status SumColumnsOfProducts(GraphRewriter& rewriter) {
  const std::vector<Node*> order = rewriter.Order();
  absl::flat_hash_map<const Node*, size_t> place;
  for (size_t i = 0; i < order.size(); ++i) place[order[i]] = i;
  absl::flat_hash_set<const Node*> joined;
  for (Node* const sum : order) {
    Node* const product = ProductOf(rewriter, *sum, place);
    if (product == nullptr || !joined.insert(product).second) continue;
    NodeSpec spec;
    spec.op = "MusterProductAndColumns";
    spec.name = rewriter.graph().UniqueName(absl::StrCat(product->name(), "/with_bias"));
    spec.inputs = {rewriter.Input(*product, 0), rewriter.Input(*product, 1)};
    spec.attrs["transpose_a"] = true;
    const PartialShape shapes[] = {product->output_shape(0), sum->output_shape(0)};
    ASSIGN_OR_RETURN(Node* const both, rewriter.Add(*product, std::move(spec)));
    for (const int i : {0, 1}) both->set_output_shape(i, shapes[i]);
    rewriter.Replace(Output(product, 0), Output(both, 0));
    rewriter.Replace(Output(sum, 0), Output(both, 1));
    rewriter.WaitInstead(*product, {both});
    rewriter.WaitInstead(*sum, {both});
  }
  rewriter.Commit();
  return absl::OkStatus();
}

absl::Status SumReluGradients(GraphRewriter& rewriter) {
  absl::flat_hash_set<const Node*> joined;
  for (Node* const node : rewriter.Order()) {
    if (!SumsReluGrad(rewriter, *node) || !joined.insert(node->input(0).node).second) continue;
    Node& relu = *node->input(0).node;
    NodeSpec spec;
    spec.op = "MusterReluBiasGrad";
    spec.name = rewriter.graph().UniqueName(absl::StrCat(relu.name(), "/with_bias"));
    spec.inputs = {rewriter.Input(relu, 0), rewriter.Input(relu, 1)};
    spec.attrs["T"] = node->output_types()[0];
    if (const AttrValue* const format = node->FindAttr("data_format"))
      spec.attrs["data_format"] = *format;
    spec.control_inputs = rewriter.ControlInputs(relu);
    const PartialShape shapes[] = {relu.output_shape(0), node->output_shape(0)};
    ASSIGN_OR_RETURN(Node* const both, rewriter.Add(relu, std::move(spec)));
    for (const int i : {0, 1}) both->set_output_shape(i, shapes[i]);
    rewriter.Replace(Output(&relu, 0), Output(both, 0));
    rewriter.Replace(Output(node, 0), Output(both, 1));
    rewriter.WaitInstead(relu, {both});
    rewriter.WaitInstead(*node, {both});
  }
  rewriter.Commit();
  return absl::OkStatus();
}

absl::Status SumColumns(GraphRewriter& rewriter) {
  for (Node* const node : rewriter.Order()) {
    if (!SumsColumns(*node)) continue;
    NodeSpec spec;
    spec.op = "BiasAddGrad";
    spec.inputs = {rewriter.Input(*node, 0)};
    spec.attrs["data_format"] = std::string("NHWC");
    spec.control_inputs = rewriter.ControlInputsOfAll({node, node->input(1).node});
    const PartialShape shape = node->output_shape(0);
    ASSIGN_OR_RETURN(Node* const sum, rewriter.Substitute(*node, std::move(spec)));
    sum->set_output_shape(0, shape);
  }
  rewriter.Commit();
  return absl::OkStatus();
}

}  // namespace muster
