#include "muster/train/apply_op.h"

#include <utility>

namespace muster {

absl::StatusOr<Node*> ApplyOpOptimizer::Apply(const Scope& scope, absl::string_view kind,
                                              const TrainVariable& variable, Arguments gradient,
                                              DType dtype) {
  Arguments arguments = {{"var", variable}};
  for (const SlotArgument& slot : slots_) {
    ASSIGN_OR_RETURN(TrainVariable found, slots().Get(variable, slot.slot));
    arguments.emplace_back(slot.argument, std::move(found));
  }
  ASSIGN_OR_RETURN(Arguments numbers, Numbers(scope, dtype));
  arguments.insert(arguments.end(), numbers.begin(), numbers.end());
  arguments.insert(arguments.end(), gradient.begin(), gradient.end());
  AttrMap attrs = attrs_;
  attrs.insert_or_assign("use_locking", AttrValue(use_locking()));
  Node* node = CallOp(scope, absl::StrCat(variable.is_resource ? "Resource" : "", kind, op_),
                      arguments, std::move(attrs));
  RETURN_IF_ERROR(scope.status());
  return node;
}

absl::StatusOr<Node*> ApplyOpOptimizer::ApplyDense(const Scope& scope, Output gradient,
                                                   const TrainVariable& variable) {
  return Apply(scope, "Apply", variable, {{dense_gradient_, gradient}}, gradient.base_dtype());
}

absl::StatusOr<Node*> ApplyOpOptimizer::ApplySparse(const Scope& scope,
                                                    const IndexedSlices& gradient,
                                                    const TrainVariable& variable) {
  return Apply(scope, "SparseApply", variable,
               {{"grad", gradient.values}, {"indices", gradient.indices}},
               gradient.values.base_dtype());
}

absl::StatusOr<ApplyOpOptimizer::Arguments> ApplyOpOptimizer::Numbers(const Scope& scope,
                                                                      DType dtype) {
  Arguments numbers;
  for (const HyperArgument& hyper : hypers_) {
    numbers.emplace_back(hyper.argument, Hyper(scope, hyper.name, dtype));
  }
  RETURN_IF_ERROR(scope.status());
  return numbers;
}

absl::Status ApplyOpOptimizer::CreateSlots(const Scope& scope,
                                           absl::Span<const TrainVariable> variables) {
  for (const TrainVariable& variable : variables) {
    for (const SlotArgument& slot : slots_) {
      SlotSpec spec{slot.slot, name(), SlotSpec::Zeros()};
      if (const auto* filled = std::get_if<SlotSpec::Filled>(&slot.initial)) spec.initial = *filled;
      RETURN_IF_ERROR(slots().GetOrMake(scope, variable, spec).status());
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Output> FilledLike(const Scope& scope, const TrainVariable& variable, double value) {
  const std::optional<Shape> shape = variable.shape.ToShape();
  if (!shape.has_value()) {
    return InvalidArgument("Cannot convert a partially known TensorShape to a Tensor: ",
                           variable.shape.ToString());
  }
  ASSIGN_OR_RETURN(const Output filled,
                   Constant(value, *shape, variable.dtype)(scope.ColocatedWith(variable.node())));
  RETURN_IF_ERROR(scope.status());
  return filled;
}

}  // namespace muster
