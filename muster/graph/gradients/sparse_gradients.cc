#include "muster/graph/gradients/sparse_gradients.h"

#include <algorithm>

#include "muster/base/check.h"
#include "muster/graph/build/emit.h"

namespace muster {

Node& GradientNode(const Gradient& gradient) {
  CHECK(HasValue(gradient));
  if (const auto* dense = std::get_if<Output>(&gradient)) return *dense->node;
  return *std::get<IndexedSlices>(gradient).values.node;
}

std::vector<Output> Components(const Gradient& gradient) {
  if (const auto* dense = std::get_if<Output>(&gradient)) return {*dense};
  const auto* sparse = std::get_if<IndexedSlices>(&gradient);
  if (sparse == nullptr) return {};
  std::vector<Output> components = {sparse->values, sparse->indices};
  if (sparse->dense_shape) components.push_back(sparse->dense_shape);
  return components;
}

Gradient FromComponents(const Gradient& like, const std::vector<Output>& components) {
  if (std::holds_alternative<Output>(like)) return components[0];
  IndexedSlices slices{components[0], components[1], Output()};
  if (components.size() > 2) slices.dense_shape = components[2];
  return slices;
}

absl::StatusOr<IndexedSlices> AsIndexedSlices(const Scope& scope, const Gradient& gradient,
                                              bool optimize) {
  if (const auto* sparse = std::get_if<IndexedSlices>(&gradient)) return *sparse;
  const Output dense = std::get<Output>(gradient);
  const Scope fresh = scope.WithFreshStatus();
  const Output shape = EmitShape(fresh, dense, "Shape", DType::kInt32, optimize);
  const Output rows = EmitElement(fresh, shape, 0);
  const Scope range = fresh.NameScope("range");
  const Output start = range.ConstScalar<int32_t>(0, "start");
  const Output delta = range.ConstScalar<int32_t>(1, "delta");
  const Output indices = OpNamed(range, "Range", {start, rows, delta});
  RETURN_IF_ERROR(fresh.status());
  return IndexedSlices{dense, indices, shape};
}

absl::StatusOr<std::vector<IndexedSlices>> AsIndexedSlicesList(
    const Scope& scope, const std::vector<Gradient>& gradients, bool optimize) {
  std::vector<IndexedSlices> slices;
  for (const Gradient& gradient : gradients) {
    ASSIGN_OR_RETURN(const IndexedSlices converted, AsIndexedSlices(scope, gradient, optimize));
    slices.push_back(converted);
  }
  const auto narrow = [](const IndexedSlices& s) {
    return s.indices.base_dtype() == DType::kInt32;
  };
  const auto count = std::count_if(slices.begin(), slices.end(), narrow);
  if (count == 0 || count == static_cast<std::ptrdiff_t>(slices.size())) return slices;
  for (IndexedSlices& s : slices) {
    if (!narrow(s)) continue;
    ASSIGN_OR_RETURN(s.indices, TryOp(scope, "Cast", {s.indices}, {{"DstT", DType::kInt64}}));
  }
  return slices;
}

absl::StatusOr<Gradient> MergeGradients(const Scope& scope, const std::vector<Gradient>& inputs,
                                        absl::string_view name) {
  const bool dense = std::all_of(inputs.begin(), inputs.end(), [](const Gradient& g) {
    return std::holds_alternative<Output>(g);
  });
  if (dense) {
    std::vector<Output> outputs;
    for (const Gradient& input : inputs) outputs.push_back(std::get<Output>(input));
    return AddMerge(scope, std::move(outputs), name);
  }
  for (const Gradient& input : inputs) {
    if (!HasValue(input)) return InvalidArgument("At least one of the merge inputs is None");
  }
  ASSIGN_OR_RETURN(const Scope own, scope.TryNameScope(name));
  ASSIGN_OR_RETURN(const std::vector<IndexedSlices> slices,
                   AsIndexedSlicesList(own, inputs, /*optimize=*/false));
  std::vector<std::vector<Output>> parts;
  for (const IndexedSlices& s : slices) {
    parts.push_back(Components(s));
    if (parts.back().size() != parts[0].size()) {
      return InvalidArgument("Some but not all of the merged slices have a dense shape");
    }
  }
  std::vector<Output> merged;
  for (size_t i = 0; i < parts[0].size(); ++i) {
    std::vector<Output> same;
    for (const std::vector<Output>& part : parts) same.push_back(part[i]);
    ASSIGN_OR_RETURN(const Output merge, AddMerge(own, std::move(same)));
    merged.push_back(merge);
  }
  return FromComponents(slices[0], merged);
}

absl::StatusOr<GradientSides> SwitchGradients(const Scope& scope, const Gradient& gradient,
                                              Output pred, bool colocated, absl::string_view name) {
  const Scope at =
      colocated ? scope.ColocatedWith(GradientNode(gradient), /*ignore_existing=*/true) : scope;
  if (const auto* dense = std::get_if<Output>(&gradient)) {
    ASSIGN_OR_RETURN(const SwitchOutputs sides, AddSwitch(at, *dense, pred, name));
    return GradientSides{sides.if_false, sides.if_true};
  }
  ASSIGN_OR_RETURN(const Scope own, at.TryNameScope(name));
  std::vector<Output> if_false, if_true;
  for (const Output& part : Components(gradient)) {
    ASSIGN_OR_RETURN(const SwitchOutputs sides, AddSwitch(own, part, pred));
    if_false.push_back(sides.if_false);
    if_true.push_back(sides.if_true);
  }
  return GradientSides{FromComponents(gradient, if_false), FromComponents(gradient, if_true)};
}

}  // namespace muster
