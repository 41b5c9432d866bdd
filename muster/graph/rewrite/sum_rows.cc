#include <optional>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "muster/base/status.h"
#include "muster/graph/rewrite/optimize.h"
#include "muster/graph/rewrite/passes.h"

namespace muster {
namespace {

bool IsConstVector(const Node& node, int32_t value) {
  const Tensor* const tensor = ConstValue(node);
  return tensor != nullptr && tensor->dtype() == DType::kInt32 && tensor->shape().is_vector() &&
         tensor->num_elements() == 1 && tensor->data<int32_t>()[0] == value;
}

bool IsScatter(const Node& node) {
  static const auto* ops = new absl::flat_hash_set<absl::string_view>{
      "ScatterAdd", "ScatterSub", "ResourceScatterAdd", "ResourceScatterSub"};
  return ops->contains(node.op());
}

// Zeros of one operand stay zeros.
bool KeepsZeros(const Node& node) {
  return node.op() == "Mul" || node.op() == "Square" || node.op() == "Neg";
}

// An optimizer sums gradients of equal indices before it changes rows:
//
//   unique, places = Unique(indices)
//   sum = UnsortedSegmentSum(values, places, Shape(unique)[0])
struct Sum {
  Node* unique = nullptr;
  Node* sum = nullptr;
  Node* count = nullptr;
  Output indices() const { return unique->input(0); }
  Output values() const { return sum->input(0); }
};

class RowSummer {
 public:
  explicit RowSummer(GraphRewriter& rewriter) : rewriter_(rewriter) {}

  absl::Status Run() {
    for (Node* node : rewriter_.Order()) {
      if ((absl::StartsWith(node->op(), "SparseApply") ||
           absl::StartsWith(node->op(), "ResourceSparseApply")) &&
          RunsOnGpu(*node))
        RETURN_IF_ERROR(LetOpSum(*node));
    }
    rewriter_.Commit();
    for (Node* node : rewriter_.Order()) {
      if (node->op() == "UnsortedSegmentSum" && RunsOnGpu(*node))
        RETURN_IF_ERROR(SumInPlaces(*node));
    }
    rewriter_.Commit();
    return absl::OkStatus();
  }

 private:
  static std::optional<int> InputNamed(const Node& node, absl::string_view name) {
    const std::vector<ArgDef>& args = node.def().inputs;
    for (size_t i = 0; i < args.size(); ++i) {
      if (args[i].name == name) return static_cast<int>(i);
    }
    return std::nullopt;
  }

  // count is the number of elements of the vector `unique`.
  static bool Counts(const Output& count, const Output& unique) {
    const Node& slice = *count.node;
    if (slice.op() != "StridedSlice" || slice.num_inputs() != 4) return false;
    const Output shape = slice.input(0);
    return slice.Attr<int64_t>("shrink_axis_mask").value_or(0) == 1 &&
           slice.Attr<int64_t>("begin_mask").value_or(0) == 0 &&
           slice.Attr<int64_t>("ellipsis_mask").value_or(0) == 0 &&
           slice.Attr<int64_t>("new_axis_mask").value_or(0) == 0 &&
           IsConstVector(*slice.input(1).node, 0) && IsConstVector(*slice.input(3).node, 1) &&
           shape.node->op() == "Shape" && shape.node->input(0) == unique;
  }

  static std::optional<Sum> FindSum(Node& sum) {
    if (sum.op() != "UnsortedSegmentSum") return std::nullopt;
    const Output places = sum.input(1);
    if (places.node->op() != "Unique" || places.index != 1 ||
        !Counts(sum.input(2), Output(places.node, 0)))
      return std::nullopt;
    return Sum{places.node, &sum, sum.input(2).node};
  }

  // SparseApplyX(..., sum, unique) takes values and indices and sums by itself.
  absl::Status LetOpSum(Node& apply) {
    const std::optional<int> at_gradient = InputNamed(apply, "grad");
    const std::optional<int> at_indices = InputNamed(apply, "indices");
    if (!at_gradient || !at_indices) return absl::OkStatus();
    const std::optional<Sum> found = FindSum(*apply.input(*at_gradient).node);
    if (!found || found->sum->device() != apply.device() ||
        apply.input(*at_indices) != Output(found->unique, 0))
      return absl::OkStatus();
    NodeSpec spec;
    spec.op = apply.op();
    spec.attrs = apply.attrs();
    spec.attrs[kSumsRepeatedRows] = true;
    std::vector<Output> inputs;
    for (int i = 0; i < apply.num_inputs(); ++i) inputs.push_back(rewriter_.Input(apply, i));
    inputs[*at_gradient] = rewriter_.Resolve(found->values());
    inputs[*at_indices] = rewriter_.Resolve(found->indices());
    spec.flat_inputs = std::move(inputs);
    spec.control_inputs = rewriter_.ControlInputsOfAll({&apply, found->sum, found->unique});
    return rewriter_.Substitute(apply, std::move(spec)).status();
  }

  // Other optimizers scatter what follows from the sums. As many sums as there are indices, zeros
  // and rows that do not exist among them, do as well there.
  absl::Status SumInPlaces(Node& node) {
    const std::optional<Sum> found = FindSum(node);
    const DType type = node.output_types()[0];
    if (!found ||
        (type != DType::kFloat && type != DType::kDouble && type != DType::kHalf &&
         type != DType::kBfloat16) ||
        !IsOnlyScattered(*found))
      return absl::OkStatus();
    NodeSpec spec;
    spec.op = "MusterSumRows";
    spec.name = rewriter_.graph().UniqueName(absl::StrCat(node.name(), "/rows"));
    spec.inputs = {found->values(), found->indices()};
    spec.control_inputs = rewriter_.ControlInputsOfAll({found->sum, found->unique});
    ASSIGN_OR_RETURN(Node* const summed, rewriter_.Add(node, std::move(spec)));
    rewriter_.Replace(Output(&node, 0), Output(summed, 0));
    rewriter_.Replace(Output(found->unique, 0), Output(summed, 1));
    return absl::OkStatus();
  }

  bool IsSeen(const Node& node) const {
    return rewriter_.is_result(node) || rewriter_.num_waiting(node) > 0;
  }
  // All readers are `reader`.
  static bool IsReadBy(const Node& node, const Node& reader) {
    for (const Node::Consumer& consumer : node.consumers())
      if (consumer.node != &reader) return false;
    return true;
  }
  bool IsOnlyScattered(const Sum& found) const {
    if (IsSeen(*found.unique) || IsSeen(*found.sum)) return false;
    const Output unique(found.unique, 0);
    absl::flat_hash_set<const Node*> sums = {found.sum};
    std::vector<const Node*> open = {found.sum};
    while (!open.empty()) {
      const Node& from = *open.back();
      open.pop_back();
      for (const Node::Consumer& consumer : from.consumers()) {
        const Node& reader = *consumer.node;
        if (reader.device() != found.sum->device()) return false;
        if (IsScatter(reader)) {
          if (consumer.input != 2 || reader.input(1) != unique) return false;
        } else if (!KeepsZeros(reader) || IsSeen(reader)) {
          return false;
        } else if (sums.insert(&reader).second) {
          open.push_back(&reader);
        }
      }
    }
    // The other operand of a product is a scalar, or has the same rows.
    for (const Node* const sum : sums) {
      if (sum == found.sum) continue;
      for (const Output& operand : sum->inputs()) {
        const bool is_scalar = operand.shape().known_rank() && operand.shape().rank() == 0;
        if (!is_scalar && !sums.contains(operand.node)) return false;
      }
    }
    for (const Node::Consumer& consumer : found.unique->consumers()) {
      const Node& reader = *consumer.node;
      const bool counts = &reader == found.count->input(0).node && !IsSeen(reader) &&
                          IsReadBy(reader, *found.count) && IsReadBy(*found.count, *found.sum);
      const bool is_index =
          IsScatter(reader) && consumer.input == 1 && sums.contains(reader.input(2).node);
      if (&reader != found.sum && !counts && !is_index) return false;
    }
    return true;
  }

  GraphRewriter& rewriter_;
};

}  // namespace

absl::Status SumRepeatedRows(GraphRewriter& rewriter) {
  return RowSummer(rewriter).Run();
}

}  // namespace muster
