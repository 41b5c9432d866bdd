// Gradients of variables that are used in many places, as in the unrolled steps of a recurrent
// network, are sums over these places: of products a' b, and of sums of columns. One product of all
// the rows of a and b gives the same sum, and keeps a GPU busy where each of the small ones does
// not:
//
//   AddN(MatMul(a0, b0, transpose_a), MatMul(a1, b1, transpose_a), ...)
//     = MatMul(Concat(a0, a1, ...), Concat(b0, b1, ...), transpose_a)
#include <map>
#include <string>
#include <tuple>

#include "muster/base/status.h"
#include "muster/graph/rewrite/passes.h"

namespace muster {
namespace {

// Fewer places are not worth the copies.
constexpr size_t kLeastPlaces = 4;

bool IsMatrix(const Output& output) {
  const PartialShape& shape = output.shape();
  return shape.fully_known() && shape.rank() == 2 && !MayKillOutputs(*output.node);
}

class SumJoiner {
 public:
  explicit SumJoiner(GraphRewriter& rewriter) : rewriter_(rewriter) {}

  absl::Status Run() {
    for (Node* node : rewriter_.Order()) {
      if (node->op() != "AddN" || !RunsOnGpu(*node)) continue;
      std::vector<int> products, sums;
      for (int i = 0; i < node->num_inputs(); ++i) {
        const Node& term = *node->input(i).node;
        if (term.device() != node->device() || !rewriter_.IsHidden(term)) continue;
        if (IsProduct(term) && (products.empty() || Matches(term, First(*node, products))))
          products.push_back(i);
        if (IsColumnSum(term) && (sums.empty() || Matches(term, First(*node, sums))))
          sums.push_back(i);
      }
      if (products.size() >= kLeastPlaces) {
        RETURN_IF_ERROR(Replace(*node, products));
      } else if (sums.size() >= kLeastPlaces) {
        RETURN_IF_ERROR(Replace(*node, sums));
      }
    }
    rewriter_.Commit();
    return absl::OkStatus();
  }

 private:
  static const Node& First(const Node& sum, const std::vector<int>& terms) {
    return *sum.input(terms[0]).node;
  }
  static bool Flag(const Node& node, absl::string_view attr) {
    return node.Attr<bool>(attr).value_or(false);
  }
  // Shapes are known to fit, so no error can be lost.
  static bool IsProduct(const Node& node) {
    return node.op() == "MatMul" && Flag(node, "transpose_a") && !Flag(node, "transpose_b") &&
           IsMatrix(node.input(0)) && IsMatrix(node.input(1)) &&
           node.input(0).shape()[0] == node.input(1).shape()[0];
  }
  static bool IsColumnSum(const Node& node) {
    return node.op() == "BiasAddGrad" && IsMatrix(node.input(0)) &&
           node.Attr<std::string>("data_format").value_or("") == "NHWC";
  }
  // The same columns.
  static bool Matches(const Node& a, const Node& b) {
    for (int i = 0; i < a.num_inputs(); ++i)
      if (a.input(i).shape()[1] != b.input(i).shape()[1]) return false;
    return true;
  }

  // All rows of the input `i` of the terms. Sums of columns read what products read: it is there
  // once.
  absl::StatusOr<Output> Rows(const Node& sum, const std::vector<int>& terms, int i) {
    std::vector<Output> parts;
    int64_t rows = 0;
    for (int term : terms) {
      const Node& node = *sum.input(term).node;
      parts.push_back(rewriter_.Input(node, i));
      rows += node.input(i).shape()[0];
    }
    std::string key;
    for (const Output& part : parts) absl::StrAppend(&key, part.node->id(), ":", part.index, " ");
    const auto found = rows_.find(key);
    if (found != rows_.end()) return found->second;
    NodeSpec axis;
    axis.op = "Const";
    axis.control_inputs = {parts[0].node};  // so that it is in the same loop
    axis.name = absl::StrCat(sum.name(), "/axis", rows_.size());
    axis.attrs = {{"dtype", DType::kInt32}, {"value", Tensor::Scalar<int32_t>(0)}};
    ASSIGN_OR_RETURN(Node* const axis_node, rewriter_.Add(sum, std::move(axis)));
    const PartialShape shape({rows, First(sum, terms).input(i).shape()[1]});
    NodeSpec joined;
    joined.op = "ConcatV2";
    joined.name = absl::StrCat(sum.name(), "/rows", rows_.size());
    joined.inputs = {parts, Output(axis_node, 0)};
    ASSIGN_OR_RETURN(Node* const node, rewriter_.Add(sum, std::move(joined)));
    node->set_output_shape(0, shape);
    rows_.emplace(std::move(key), Output(node, 0));
    return Output(node, 0);
  }

  absl::Status Replace(Node& sum, const std::vector<int>& terms) {
    const Node& first = First(sum, terms);
    NodeSpec joined;
    joined.op = first.op();
    std::vector<const Node*> replaced = {&sum};
    for (int term : terms) replaced.push_back(sum.input(term).node);
    std::vector<Output> rest;
    for (int i = 0; i < sum.num_inputs(); ++i) {
      if (!absl::c_linear_search(terms, i)) rest.push_back(rewriter_.Input(sum, i));
    }
    for (int i = 0; i < first.num_inputs(); ++i) {
      ASSIGN_OR_RETURN(const Output rows, Rows(sum, terms, i));
      joined.inputs.push_back(rows);
    }
    if (first.op() == "MatMul") {
      joined.attrs["transpose_a"] = true;
      joined.attrs["transpose_b"] = false;
    } else {
      joined.attrs["data_format"] = std::string("NHWC");
    }
    const std::vector<Node*> waits_for = rewriter_.ControlInputsOfAll(replaced);
    const PartialShape shape = sum.output_shape(0);
    if (rest.empty()) {
      joined.control_inputs = waits_for;
      ASSIGN_OR_RETURN(Node* const node, rewriter_.Substitute(sum, std::move(joined)));
      node->set_output_shape(0, shape);
      return absl::OkStatus();
    }
    joined.name = absl::StrCat(sum.name(), "/joined");
    ASSIGN_OR_RETURN(Node* const node, rewriter_.Add(sum, std::move(joined)));
    node->set_output_shape(0, shape);
    rest.push_back(Output(node, 0));
    NodeSpec total;
    total.op = "AddN";
    total.inputs = {rest};
    total.control_inputs = waits_for;
    ASSIGN_OR_RETURN(Node* const added, rewriter_.Substitute(sum, std::move(total)));
    added->set_output_shape(0, shape);
    return absl::OkStatus();
  }

  GraphRewriter& rewriter_;
  std::map<std::string, Output> rows_;  // by what they are made of
};

}  // namespace

absl::Status JoinSums(GraphRewriter& rewriter) {
  return SumJoiner(rewriter).Run();
}

}  // namespace muster
