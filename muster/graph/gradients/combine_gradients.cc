#include "muster/graph/gradients/combine_gradients.h"

#include <algorithm>
#include <map>

#include "muster/graph/build/emit.h"
#include "muster/graph/control_flow/cond_context.h"
#include "muster/graph/gradients/sparse_gradients.h"

namespace muster {
namespace {

// AddN of all, per device first; slices among dense gradients become dense inside.
absl::StatusOr<Gradient> AddAll(const Scope& scope, const std::vector<Gradient>& list) {
  if (list.size() == 1 && std::holds_alternative<Output>(list[0])) return list[0];
  const Scope own = scope.NameScope("AddN").WithFreshStatus();
  std::vector<Output> inputs;
  for (size_t i = 0; i < list.size(); ++i) {
    if (const auto* dense = std::get_if<Output>(&list[i])) {
      inputs.push_back(*dense);
      continue;
    }
    const IndexedSlices& slices = std::get<IndexedSlices>(list[i]);
    if (!slices.dense_shape) {
      return InvalidArgument("Tensor conversion requested for IndexedSlices without dense_shape: ",
                             slices.values.name());
    }
    const Output rows = EmitElement(own, slices.dense_shape, 0);
    inputs.push_back(own.Op("UnsortedSegmentSum", {slices.values, slices.indices, rows}, {},
                            absl::StrCat("inputs_", i)));
  }
  const Output sum = OpNamed(own, "AddN", {std::move(inputs)});
  RETURN_IF_ERROR(own.status());
  return sum;
}

absl::StatusOr<Gradient> AddByDevice(const Scope& scope, const std::vector<Gradient>& list) {
  std::map<std::string, std::vector<Gradient>> by_device;
  for (const Gradient& gradient : list)
    by_device[GradientNode(gradient).device()].push_back(gradient);
  std::vector<Gradient> sums;
  for (const auto& [device, gradients] : by_device) {
    const Scope at = scope.ColocatedWith(GradientNode(gradients[0]), /*ignore_existing=*/true);
    ASSIGN_OR_RETURN(Gradient sum, AddAll(at, gradients));
    sums.push_back(std::move(sum));
  }
  return AddAll(scope, sums);
}

}  // namespace

absl::StatusOr<Gradient> SumGradients(const Scope& scope, absl::string_view node,
                                      const std::vector<Gradient>& list, AggregationMethod method) {
  if (list.empty()) return Gradient();
  if (list.size() == 1) return list[0];
  const auto is_dense = [](const Gradient& gradient) {
    return std::holds_alternative<Output>(gradient);
  };
  if (std::all_of(list.begin(), list.end(), is_dense)) {
    if (method == AggregationMethod::kAddN) return AddByDevice(scope, list);
    PartialShape shape;
    std::vector<Output> outputs;
    for (const Gradient& gradient : list) {
      outputs.push_back(std::get<Output>(gradient));
      ASSIGN_OR_RETURN(shape, shape.Merge(outputs.back().shape()));
    }
    if (method == AggregationMethod::kAccumulateN && list.size() > 2 && shape.fully_known()) {
      return TryOp(scope, "AccumulateNV2", {std::move(outputs)}, {{"shape", shape}});
    }
    const Scope own = scope.NameScope(absl::StrCat(node, "_gradient_sum"));
    Gradient sum = list[0];
    for (size_t i = 1; i < list.size(); ++i) {
      ASSIGN_OR_RETURN(sum, AddAll(own, {sum, list[i]}));
    }
    return sum;
  }
  if (std::any_of(list.begin(), list.end(), is_dense)) return AddAll(scope, list);
  ASSIGN_OR_RETURN(const std::vector<IndexedSlices> slices,
                   AsIndexedSlicesList(scope, list, /*optimize=*/true));
  std::vector<Output> values, indices;
  for (const IndexedSlices& s : slices) {
    values.push_back(s.values);
    indices.push_back(s.indices);
  }
  const Scope fresh = scope.WithFreshStatus();
  IndexedSlices result;
  result.values = EmitConcat(fresh, std::move(values));
  result.indices = EmitConcat(fresh, std::move(indices));
  result.dense_shape = slices[0].dense_shape;
  RETURN_IF_ERROR(fresh.status());
  return result;
}

absl::StatusOr<std::vector<Gradient>> GateGradients(const Scope& scope,
                                                    const std::vector<Gradient>& gradients) {
  ASSIGN_OR_RETURN(const Scope own, scope.WithoutColocation().TryNameScope("tuple"));
  std::vector<Node*> nodes;
  for (const Gradient& gradient : gradients) {
    if (HasValue(gradient)) nodes.push_back(&GradientNode(gradient));
  }
  std::sort(nodes.begin(), nodes.end(),
            [](const Node* a, const Node* b) { return a->id() < b->id(); });
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());

  std::map<std::string, std::vector<Node*>> by_device;
  for (Node* node : nodes) by_device[node->device()].push_back(node);
  ASSIGN_OR_RETURN(const Scope group, own.TryNameScope("group_deps"));
  std::vector<Node*> before;
  Scope gate_scope = group;
  if (by_device.size() == 1) {
    before = nodes;
    gate_scope = group.WithDevice(by_device.begin()->first);
  } else {
    for (const auto& [device, on_device] : by_device) {
      ASSIGN_OR_RETURN(
          Node * part,
          group.WithDevice(device).WithControlDependencies(on_device).TryAdd("NoOp", {}));
      before.push_back(part);
    }
  }
  ASSIGN_OR_RETURN(Node * gate, gate_scope.WithControlDependencies(before).TryAdd("NoOp", {}, {},
                                                                                  group.prefix()));

  std::vector<Gradient> gated;
  for (const Gradient& gradient : gradients) {
    if (const auto* dense = std::get_if<Output>(&gradient)) {
      ASSIGN_OR_RETURN(const Output output, AddWithDependencies(own, {gate}, *dense));
      gated.emplace_back(output);
    } else if (const auto* sparse = std::get_if<IndexedSlices>(&gradient)) {
      IndexedSlices slices = *sparse;
      ASSIGN_OR_RETURN(slices.values, AddWithDependencies(own, {gate}, slices.values));
      gated.emplace_back(slices);
    } else {
      gated.emplace_back();
    }
  }
  return gated;
}

}  // namespace muster
