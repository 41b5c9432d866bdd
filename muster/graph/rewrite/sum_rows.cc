#include <optional>

#include "absl/strings/match.h"

#include "muster/base/status.h"
#include "muster/device/device_name.h"
#include "muster/graph/rewrite/optimize.h"
#include "muster/graph/rewrite/passes.h"

namespace muster {
namespace {

bool RunsOnGpu(const Node& node) {
  const absl::StatusOr<DeviceName> name = DeviceName::Parse(node.device());
  return name.ok() && name->type == "GPU";
}

bool IsConstVector(const Node& node, int32_t value) {
  const Tensor* const tensor = ConstValue(node);
  return tensor != nullptr && tensor->dtype() == DType::kInt32 && tensor->shape().is_vector() &&
         tensor->num_elements() == 1 && tensor->data<int32_t>()[0] == value;
}

// An optimizer sums gradients of equal indices before it changes rows:
//
//   unique, places = Unique(indices)
//   SparseApplyX(..., UnsortedSegmentSum(values, places, Shape(unique)[0]), unique)
class RowSummer {
 public:
  explicit RowSummer(GraphRewriter& rewriter) : rewriter_(rewriter) {}

  absl::Status Run() {
    for (Node* node : rewriter_.Order()) {
      if (!absl::StartsWith(node->op(), "SparseApply") &&
          !absl::StartsWith(node->op(), "ResourceSparseApply"))
        continue;
      if (RunsOnGpu(*node)) RETURN_IF_ERROR(Look(*node));
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
  bool Counts(const Output& count, const Output& unique) const {
    const Node& slice = *count.node;
    if (slice.op() != "StridedSlice" || slice.num_inputs() != 4) return false;
    const Output shape = rewriter_.Input(slice, 0);
    return slice.Attr<int64_t>("shrink_axis_mask").value_or(0) == 1 &&
           slice.Attr<int64_t>("begin_mask").value_or(0) == 0 &&
           slice.Attr<int64_t>("ellipsis_mask").value_or(0) == 0 &&
           slice.Attr<int64_t>("new_axis_mask").value_or(0) == 0 &&
           IsConstVector(*rewriter_.Input(slice, 1).node, 0) &&
           IsConstVector(*rewriter_.Input(slice, 3).node, 1) && shape.node->op() == "Shape" &&
           rewriter_.Input(*shape.node, 0) == unique;
  }

  absl::Status Look(Node& apply) {
    const std::optional<int> at_gradient = InputNamed(apply, "grad");
    const std::optional<int> at_indices = InputNamed(apply, "indices");
    if (!at_gradient || !at_indices) return absl::OkStatus();
    const Output unique = rewriter_.Input(apply, *at_indices);
    const Output summed = rewriter_.Input(apply, *at_gradient);
    if (unique.node->op() != "Unique" || unique.index != 0 ||
        summed.node->op() != "UnsortedSegmentSum" || summed.node->device() != apply.device() ||
        rewriter_.Input(*summed.node, 1) != Output(unique.node, 1) ||
        !Counts(rewriter_.Input(*summed.node, 2), unique))
      return absl::OkStatus();
    const Output indices = rewriter_.Input(*unique.node, 0);
    const Output values = rewriter_.Input(*summed.node, 0);
    NodeSpec spec;
    spec.op = apply.op();
    spec.attrs = apply.attrs();
    spec.attrs[kSumsRepeatedRows] = true;
    std::vector<Output> inputs;
    for (int i = 0; i < apply.num_inputs(); ++i) inputs.push_back(rewriter_.Input(apply, i));
    inputs[*at_gradient] = values;
    inputs[*at_indices] = indices;
    spec.flat_inputs = std::move(inputs);
    spec.control_inputs = rewriter_.ControlInputsOfAll({&apply, summed.node, unique.node});
    return rewriter_.Substitute(apply, std::move(spec)).status();
  }

  GraphRewriter& rewriter_;
};

}  // namespace

absl::Status SumRepeatedRows(GraphRewriter& rewriter) {
  return RowSummer(rewriter).Run();
}

}  // namespace muster
