// The gradient of a vector that was added to each row of a matrix: Sum over the rows becomes
// BiasAddGrad, whose kernel for GPUs is made for it. Where Relu was behind the addition, its
// gradient is computed in the same pass:
//
//   BiasAddGrad(ReluGrad(dy, y)) = MusterReluBiasGrad(dy, y), whose other output is ReluGrad
//
// and where a small product reads what is summed, with that:
//
//   MatMul(x, dy, transpose_a), BiasAddGrad(dy) = MusterProductAndColumns(x, dy, transpose_a)
#include "absl/algorithm/container.h"
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

// Finds the small products x' dy that sums of the columns of dy can be computed with.
class ColumnSummer {
 public:
  explicit ColumnSummer(GraphRewriter& rewriter) : rewriter_(rewriter), order_(rewriter.Order()) {
    for (size_t i = 0; i < order_.size(); ++i) place_[order_[i]] = i;
  }

  absl::Status Run() {
    for (Node* const sum : order_) {
      if (!IsSum(*sum)) continue;
      const Found found = ProductFor(*sum);
      if (found.product != nullptr && joined_.insert(found.product).second)
        RETURN_IF_ERROR(Replace(*sum, found));
    }
    rewriter_.Commit();
    return absl::OkStatus();
  }

 private:
  struct Found {
    Node* product = nullptr;
    const Node* between = nullptr;  // an Identity that the product reads dy through
  };

  bool IsFree(const Node& node) const {
    return node.control_inputs().empty() && !rewriter_.is_result(node);
  }
  // Whether the one is there before the other may run.
  bool IsBefore(const Node& one, const Node& other) const {
    const auto found = place_.find(&one);
    return found != place_.end() && found->second < place_.at(&other);
  }
  bool IsSum(const Node& node) const {
    return node.op() == "BiasAddGrad" && RunsOnGpu(node) && IsFree(node) &&
           node.output_types()[0] == DType::kFloat && !IsRef(node.input(0).dtype()) &&
           node.Attr<std::string>("data_format").value_or("") == "NHWC";
  }
  // What tf.tuple makes of gradients, this sum among them: it waits for nothing that comes later.
  bool IsTuple(const Node& node, const Node& sum) const {
    if (node.op() != "Identity" || node.device() != sum.device() || rewriter_.is_result(node))
      return false;
    return absl::c_all_of(node.control_inputs(), [&](const Node* before) {
      return before == &sum || IsBefore(*before, sum);
    });
  }
  bool IsProductFor(const Node::Consumer& reader, const Output& dy, const Node& sum) const {
    const Node& product = *reader.node;
    if (reader.input != 1 || product.op() != "MatMul" || product.device() != sum.device() ||
        !IsFree(product) || !product.Attr<bool>("transpose_a").value_or(false) ||
        product.Attr<bool>("transpose_b").value_or(true))
      return false;
    const Output x = product.input(0);
    const PartialShape& a = x.shape();
    const PartialShape& b = dy.shape();
    return a.fully_known() && b.fully_known() && a.rank() == 2 && b.rank() == 2 && a[0] == b[0] &&
           a[0] > 0 && a[0] <= kMostInnerOfSmallProducts && a[1] * b[1] > 0 &&
           a[1] * b[1] <= kMostElementsOfSmallProducts && !IsRef(x.dtype()) &&
           IsBefore(*x.node, sum);
  }
  Found ProductFor(const Node& sum) const {
    const Output dy = sum.input(0);
    for (const Node::Consumer& reader : dy.node->consumers()) {
      if (reader.output != dy.index) continue;
      if (IsProductFor(reader, dy, sum)) return {reader.node, nullptr};
      if (!IsTuple(*reader.node, sum)) continue;
      for (const Node::Consumer& next : reader.node->consumers())
        if (IsProductFor(next, dy, sum)) return {next.node, reader.node};
    }
    return {};
  }

  absl::Status Replace(Node& sum, const Found& found) {
    Node& product = *found.product;
    NodeSpec spec;
    spec.op = "MusterProductAndColumns";
    spec.name = rewriter_.graph().UniqueName(absl::StrCat(product.name(), "/with_bias"));
    spec.inputs = {rewriter_.Input(product, 0), rewriter_.Input(sum, 0)};
    spec.attrs["transpose_a"] = true;
    if (found.between != nullptr) {
      for (Node* const before : rewriter_.ControlInputs(*found.between))
        if (before != &sum) spec.control_inputs.push_back(before);
    }
    const PartialShape shapes[] = {product.output_shape(0), sum.output_shape(0)};
    ASSIGN_OR_RETURN(Node* const both, rewriter_.Add(sum, std::move(spec)));
    for (const int i : {0, 1}) both->set_output_shape(i, shapes[i]);
    rewriter_.Replace(Output(&product, 0), Output(both, 0));
    rewriter_.Replace(Output(&sum, 0), Output(both, 1));
    rewriter_.WaitInstead(product, {both});
    rewriter_.WaitInstead(sum, {both});
    return absl::OkStatus();
  }

  GraphRewriter& rewriter_;
  const std::vector<Node*> order_;
  absl::flat_hash_map<const Node*, size_t> place_;
  absl::flat_hash_set<const Node*> joined_;
};

}  // namespace

absl::Status SumColumnsOfProducts(GraphRewriter& rewriter) {
  return ColumnSummer(rewriter).Run();
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
