#include "muster/graph/gradients/gradient_context.h"

#include <algorithm>

#include "muster/graph/build/build_state.h"
#include "muster/graph/build/emit.h"

namespace muster {
namespace {

// Axes to sum over when shapes x and y were broadcast against each other. Axes of size 1 in both
// count as broadcast, unless the shapes are alike.
BroadcastAxes ReductionAxes(const Dims& x, const Dims& y) {
  BroadcastAxes axes;
  if (x == y) return axes;
  const int rank = static_cast<int>(std::max(x.size(), y.size()));
  const int x_offset = rank - static_cast<int>(x.size());
  const int y_offset = rank - static_cast<int>(y.size());
  for (int i = 0; i < rank; ++i) {
    const int64_t x_dim = i < x_offset ? 1 : x[i - x_offset];
    const int64_t y_dim = i < y_offset ? 1 : y[i - y_offset];
    if (x_dim == 1) axes.x.push_back(i);
    if (y_dim == 1) axes.y.push_back(i);
  }
  return axes;
}

bool UsesStaticShapes(absl::string_view op) {
  return op == "Add" || op == "AddV2" || op == "Sub" || op == "Mul" || op == "Pow" ||
         op == "SquaredDifference";
}

// Ops whose gradients skip everything about broadcasting where all shapes are known and equal.
bool HasEqualShapesShortcut(absl::string_view op, DType dtype) {
  if (op == "Mul") return dtype == DType::kFloat || dtype == DType::kInt32;
  return op == "Add" || op == "AddV2" || op == "Sub" || op == "SquaredDifference" ||
         op == "MulNoNan";
}

std::vector<int32_t> Narrow(const Dims& dims) {
  return std::vector<int32_t>(dims.begin(), dims.end());
}

}  // namespace

Output GradientContext::dy(int i) {
  if (const auto* dense = std::get_if<Output>(&output_gradients_[i])) return *dense;
  const auto* sparse = std::get_if<IndexedSlices>(&output_gradients_[i]);
  if (sparse == nullptr) {
    scope_.UpdateStatus(Internal("Output ", i, " of '", node_.name(), "' has no gradient"));
    return Output();
  }
  if (!sparse->dense_shape) {
    scope_.UpdateStatus(
        InvalidArgument("Tensor conversion requested for IndexedSlices without dense_shape: ",
                        sparse->values.name()));
    return Output();
  }
  const IndexedSlices slices = *sparse;
  const Output rows = EmitElement(scope_, slices.dense_shape, 0);
  const Output dense = scope_.Op("UnsortedSegmentSum", {slices.values, slices.indices, rows});
  output_gradients_[i] = dense;
  return dense;
}

Output GradientContext::ShapeOf(Output x, absl::string_view name, DType out_type) const {
  return EmitShape(scope_, x, name, out_type);
}

bool GradientContext::ShapesEqual() const {
  const auto* dense = std::get_if<Output>(&output_gradients_[0]);
  if (dense == nullptr || !*dense) return false;
  const PartialShape& x = input(0).shape();
  return x.fully_known() && x == input(1).shape() && x == dense->shape();
}

std::pair<GradientContext::Reduction, GradientContext::Reduction> GradientContext::BroadcastArgs()
    const {
  Reduction x, y;
  x.shape = ShapeOf(input(0));
  y.shape = ShapeOf(input(1));
  Node* axes = scope_.Add("BroadcastGradientArgs", {x.shape, y.shape});
  if (axes == nullptr) return {x, y};
  x.axes = Output(axes, 0);
  y.axes = Output(axes, 1);
  return {x, y};
}

std::pair<GradientContext::Reduction, GradientContext::Reduction>
GradientContext::SmartBroadcastArgs() const {
  const auto* dense = std::get_if<Output>(&output_gradients_[0]);
  if (dense == nullptr) return BroadcastArgs();
  const auto x_shape = input(0).shape().ToShape();
  const auto y_shape = input(1).shape().ToShape();
  Reduction x, y;
  if (!x_shape.has_value() || !y_shape.has_value()) {
    x.shape = EmitShape(scope_, input(0), "Shape", DType::kInt32, /*optimize=*/false);
    y.shape = EmitShape(scope_, input(1), "Shape", DType::kInt32, /*optimize=*/false);
    Node* axes = scope_.Add("BroadcastGradientArgs", {x.shape, y.shape});
    if (axes == nullptr) return {x, y};
    x.axes = Output(axes, 0);
    y.axes = Output(axes, 1);
    return {x, y};
  }
  const Dims& x_dims = x_shape->dims();
  const Dims& y_dims = y_shape->dims();
  auto& cache = scope_.graph().build_state().broadcast_axes;
  const auto [it, inserted] =
      cache.try_emplace({std::vector<int64_t>(x_dims.begin(), x_dims.end()),
                         std::vector<int64_t>(y_dims.begin(), y_dims.end())});
  if (inserted) {
    it->second = ReductionAxes(x_dims, y_dims);
    const Scope own = scope_.NameScope("BroadcastGradientArgs");
    const Output s0 = own.ConstVector(Narrow(x_dims), "s0");
    const Output s1 = own.ConstVector(Narrow(y_dims), "s1");
    AddNamed(own, "BroadcastGradientArgs", {s0, s1});
  }
  x.is_static = y.is_static = true;
  x.needed = !(dense->shape() == PartialShape(*x_shape));
  y.needed = !(dense->shape() == PartialShape(*y_shape));
  x.static_shape = x_dims;
  y.static_shape = y_dims;
  x.static_axes = it->second.x;
  y.static_axes = it->second.y;
  return {x, y};
}

Output GradientContext::Reduce(Output gradient, const Reduction& reduction) const {
  if (!reduction.needed) return gradient;
  if (reduction.is_static) {
    return EmitReshape(scope_, EmitSum(scope_, gradient, reduction.static_axes),
                       reduction.static_shape);
  }
  const Output sum = scope_.Op("Sum", {gradient, reduction.axes});
  return scope_.Op("Reshape", {sum, reduction.shape});
}

void GradientContext::SetBroadcastDx(const std::function<Output()>& make_dx,
                                     const std::function<Output()>& make_dy) {
  const std::string& op = node_.op();
  if (HasEqualShapesShortcut(op, node_.output(0).base_dtype()) && ShapesEqual()) {
    SetDx(0, make_dx());
    SetDx(1, make_dy());
    return;
  }
  const auto [x, y] = UsesStaticShapes(op) ? SmartBroadcastArgs() : BroadcastArgs();
  SetDx(0, Reduce(make_dx(), x));
  SetDx(1, Reduce(make_dy(), y));
}

}  // namespace muster
