#include "absl/strings/str_cat.h"

#include "muster/graph/shape_context.h"
#include "muster/ops/array/concat.h"
#include "muster/ops/array/gradients.h"

namespace muster {
namespace {

// From this many inputs on, one SplitV is faster than many Slices.
constexpr size_t kMaxSlices = 16;

std::string Numbered(absl::string_view name, int i) {
  return i == 0 ? std::string(name) : absl::StrCat(name, "_", i);
}

// The shapes of all values: Consts where all are known, else one ShapeN. A Shape node that was made
// before the first unknown one stays, as in TensorFlow.
std::vector<Output> ValueShapes(GradientContext& c, const std::vector<Output>& values) {
  std::vector<Output> shapes;
  for (const Output& value : values) {
    const bool known = value.shape().fully_known();
    shapes.push_back(c.ShapeOf(value));
    if (known) continue;
    Node* const node = c.scope().Add("ShapeN", {values}, {{"out_type", DType::kInt32}});
    shapes.clear();
    for (size_t i = 0; i < values.size(); ++i) shapes.emplace_back(node, static_cast<int>(i));
    break;
  }
  return shapes;
}

std::vector<Gradient> DenseParts(GradientContext& c, Output dy, Output axis,
                                 const std::vector<Output>& values) {
  const std::vector<Output> shapes = ValueShapes(c, values);
  std::vector<Gradient> parts;
  if (values.size() > kMaxSlices) {
    const Output stacked = c.Op("Pack", {shapes}, {{"axis", 1}}, "stack");
    const Output begin = PackScalars(c, {axis, 0}, "Slice/begin");
    const Output size = c.scope().ConstVector({1, -1}, "Slice/size");
    const Output row = c.Op("Slice", {stacked, begin, size});
    const Output sizes = c.Op("Squeeze", {row});
    Node* const split = c.scope().Add(
        "SplitV", {dy, sizes, axis}, {{"num_split", static_cast<int64_t>(values.size())}}, "split");
    for (size_t i = 0; i < values.size(); ++i)
      parts.emplace_back(Output(split, static_cast<int>(i)));
    return parts;
  }
  Node* const offsets = c.scope().Add("ConcatOffset", {axis, shapes});
  for (size_t i = 0; i < values.size(); ++i) {
    parts.emplace_back(c.Op("Slice", {dy, Output(offsets, static_cast<int>(i)), shapes[i]}));
  }
  return parts;
}

// Joined along axis 0: each value gets the rows that fall into its range.
std::vector<Gradient> RowParts(GradientContext& c, const IndexedSlices& dy, Output axis,
                               const std::vector<Output>& shapes) {
  const DType index_type = dy.indices.base_dtype();
  Output start = index_type == DType::kInt64 ? c.scope().ConstScalar<int64_t>(0)
                                             : c.scope().ConstScalar<int32_t>(0);
  int gathers = 0;
  const auto gather = [&](Output params, Output indices) {
    const std::string name = Numbered("GatherV2", gathers++);
    const Output gather_axis = c.scope().ConstScalar<int32_t>(0, name + "/axis");
    return c.Op("GatherV2", {params, indices, gather_axis}, {}, name);
  };
  std::vector<Gradient> parts;
  for (const Output& shape : shapes) {
    Output size = gather(shape, axis);
    if (index_type != DType::kInt32) size = c.Op("Cast", {size}, {{"DstT", index_type}});
    const Output end = c.Op("AddV2", {start, size}, {}, "add");
    const Output from_start = c.Op("GreaterEqual", {dy.indices, start});
    const Output before_end = c.Op("Less", {dy.indices, end});
    const Output inside = c.Op("LogicalAnd", {from_start, before_end});
    const Output where = c.Op("Where", {inside});
    const Output selected = c.Op("Squeeze", {where}, {{"squeeze_dims", std::vector<int64_t>{1}}});
    const Output indices = c.Op("Sub", {gather(dy.indices, selected), start}, {}, "sub");
    const Output rows = gather(dy.values, selected);
    parts.emplace_back(IndexedSlices{rows, indices, shape});
    start = end;
  }
  return parts;
}

// Joined along an inner axis: each value gets all rows, cut along that axis.
std::vector<Gradient> ColumnParts(GradientContext& c, const IndexedSlices& dy, Output axis,
                                  const std::vector<Output>& shapes) {
  if (!c.scope().status().ok()) return std::vector<Gradient>(shapes.size());
  // 1 at the axis, 0 elsewhere.
  const Output rank = c.ShapeOf(shapes[0]);
  const Output expand_dim = c.scope().ConstScalar<int32_t>(0, "ExpandDims/dim");
  const Output leading = c.Op("ExpandDims", {axis, expand_dim});
  const Output zeros_before =
      c.Op("Fill", {leading, c.scope().ConstScalar<int32_t>(0, "zeros/Const")}, {}, "zeros");
  const Output rest = c.Op("Sub", {rank, axis}, {}, "sub");
  const Output one = c.scope().ConstScalar<int32_t>(1, "sub_1/y");
  const Output trailing = c.Op("Sub", {rest, one}, {}, "sub_1");
  const Output zeros_after =
      c.Op("Fill", {trailing, c.scope().ConstScalar<int32_t>(0, "zeros_1/Const")}, {}, "zeros_1");
  const Output marker = c.scope().ConstVector({1}, "concat/values_1");
  const Output mask = ConcatOf(c, {zeros_before, marker, zeros_after}, 0, "concat");
  Output begin =
      c.Op("Fill", {rank, c.scope().ConstScalar<int32_t>(0, "zeros_2/Const")}, {}, "zeros_2");
  std::vector<Gradient> parts;
  for (size_t i = 0; i < shapes.size(); ++i) {
    const std::string tail_name = Numbered("Slice", static_cast<int>(2 * i));
    const Output tail_begin = c.scope().ConstVector({1}, tail_name + "/begin");
    const Output tail_size = c.scope().ConstVector({-1}, tail_name + "/size");
    const Output tail = c.Op("Slice", {shapes[i], tail_begin, tail_size}, {}, tail_name);
    const std::string size_name = absl::StrCat("concat_", i + 1);
    const Output all_rows = c.scope().ConstVector({-1}, size_name + "/values_0");
    const Output size = ConcatOf(c, {all_rows, tail}, 0, size_name);
    const Output values = c.Op("Slice", {dy.values, begin, size});
    parts.emplace_back(IndexedSlices{values, dy.indices, shapes[i]});
    const Output step = c.Op("Mul", {shapes[i], mask}, {}, "mul");
    begin = c.Op("Add", {begin, step});
  }
  return parts;
}

}  // namespace

absl::Status ConcatGradient(GradientContext& c) {
  const ArgRange range = c.node().InputRange("values");
  const int axis_index = range.begin == 0 ? range.end : 0;
  std::vector<Output> values;
  for (int i = range.begin; i < range.end; ++i) values.push_back(c.input(i));
  Output axis = c.input(axis_index);
  std::vector<Gradient> parts;
  if (values.size() == 1) {
    parts.push_back(c.gradient(0));
  } else if (const Output* dense = std::get_if<Output>(&c.gradient(0))) {
    // A constant axis of another control-flow context is repeated here rather than carried into
    // this one.
    if (axis.node->op() == "Const" &&
        axis.node->control_flow_context() != dense->node->control_flow_context()) {
      if (const std::optional<Tensor> value = ConstantValue(axis)) axis = c.scope().Const(*value);
    }
    const Output rank = RankOf(c, values[0]);
    axis = c.Op("FloorMod", {axis, rank}, {}, "mod");
    parts = DenseParts(c, *dense, axis, values);
  } else {
    const IndexedSlices& slices = std::get<IndexedSlices>(c.gradient(0));
    const Output rank = RankOf(c, values[0]);
    const Output positive_axis = c.Op("FloorMod", {axis, rank}, {}, "mod");
    const std::optional<Tensor> constant = ConstantValue(axis);
    if (!constant) {
      return InvalidArgument(
          "Can only compute IndexedSlices gradient with statically-known concat_dim");
    }
    ASSIGN_OR_RETURN(const Dims axis_value, IntegerValues(*constant));
    if (axis_value.size() != 1) return InvalidArgument("concat_dim must be a scalar");
    int64_t static_axis = axis_value[0];
    if (static_axis < 0) {
      RankOf(c, values[0]);
      if (!values[0].shape().known_rank()) {
        return InvalidArgument(
            "Can only compute IndexedSlices gradient with negative concat_dim when first value "
            "rank is "
            "statically-known.");
      }
      static_axis += values[0].shape().rank();
    }
    std::vector<Output> shapes;
    for (const Output& value : values) shapes.push_back(c.ShapeOf(value));
    parts = static_axis > 0 ? ColumnParts(c, slices, positive_axis, shapes)
                            : RowParts(c, slices, positive_axis, shapes);
  }
  for (size_t i = 0; i < parts.size(); ++i)
    c.SetDx(range.begin + static_cast<int>(i), std::move(parts[i]));
  return absl::OkStatus();
}

}  // namespace muster
