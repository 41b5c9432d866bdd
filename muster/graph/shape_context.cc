#include "muster/graph/shape_context.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"

#include "muster/graph/evaluator.h"

namespace muster {
namespace {

// Elements of an integer tensor as dims; -1 elements are unknown.
absl::StatusOr<PartialShape> ShapeFromTensor(const Tensor& tensor) {
  ASSIGN_OR_RETURN(Dims dims, IntegerValues(tensor));
  if (tensor.rank() > 1) {
    return InvalidArgument("Input tensor must be rank 1 (or a scalar -1), but was rank ",
                           tensor.rank());
  }
  if (tensor.rank() == 0) {
    if (dims[0] == -1) return PartialShape();
    return InvalidArgument(
        "Input tensor must be rank 1, or if its rank 0 it must have value -1 (representing an "
        "unknown shape).  Saw value: ",
        dims[0]);
  }
  return PartialShape::Make(dims);
}

std::optional<PartialShape> ShapeHeldBy(Output output, int depth);

// Scalars that become one dim each.
std::optional<PartialShape> PackedDims(const Node& node) {
  PartialShape result = PartialShape::Scalar();
  for (const Output& input : node.inputs()) {
    const std::optional<Tensor> value = EvaluateConstant(input);
    int64_t size = -1;
    if (value && value->num_elements() == 1) {
      const absl::StatusOr<Dims> dims = IntegerValues(*value);
      if (dims.ok()) size = std::max<int64_t>((*dims)[0], -1);
    }
    result.Append(size);
  }
  return result;
}

std::optional<PartialShape> ConcatenatedDims(const Node& node, int first, int count, int depth) {
  PartialShape result = PartialShape::Scalar();
  for (int i = first; i < first + count; ++i) {
    const std::optional<PartialShape> part = ShapeHeldBy(node.input(i), depth + 1);
    if (!part || !part->known_rank()) return std::nullopt;
    result = ShapeContext::Concatenate(result, *part);
  }
  return result;
}

// shape[a:b] with constant bounds and stride one, the form that programs write.
std::optional<PartialShape> SlicedDims(const Node& node, int depth) {
  const std::optional<PartialShape> whole = ShapeHeldBy(node.input(0), depth + 1);
  const std::optional<Tensor> begin = EvaluateConstant(node.input(1));
  const std::optional<Tensor> end = EvaluateConstant(node.input(2));
  const std::optional<Tensor> strides = EvaluateConstant(node.input(3));
  if (!whole || !whole->known_rank() || !begin || !end || !strides || begin->num_elements() != 1)
    return std::nullopt;
  const auto mask = [&](absl::string_view name) { return node.Attr<int64_t>(name).value_or(0); };
  if (mask("ellipsis_mask") != 0 || mask("new_axis_mask") != 0 || mask("shrink_axis_mask") != 0)
    return std::nullopt;
  const absl::StatusOr<Dims> b = IntegerValues(*begin), e = IntegerValues(*end),
                             s = IntegerValues(*strides);
  if (!b.ok() || !e.ok() || !s.ok() || (*s)[0] != 1) return std::nullopt;
  const int rank = whole->rank();
  const auto clamp = [&](int64_t at) {
    return std::clamp<int64_t>(at < 0 ? at + rank : at, 0, rank);
  };
  const int64_t from = (mask("begin_mask") & 1) != 0 ? 0 : clamp((*b)[0]);
  const int64_t to = (mask("end_mask") & 1) != 0 ? rank : clamp((*e)[0]);
  return ShapeContext::Subshape(*whole, static_cast<int>(from),
                                static_cast<int>(std::max(from, to)));
}

// What is known of a shape that a tensor holds, though not all of its dims may be; nothing when not
// even its length.
std::optional<PartialShape> ShapeHeldBy(Output output, int depth) {
  if (depth > 20 || !output) return std::nullopt;
  const Node& node = *output.node;
  const std::string& op = node.op();
  if (op == "Shape" || op == "ShapeN") {
    const PartialShape& shape = node.input(op == "ShapeN" ? output.index : 0).shape();
    if (shape.known_rank()) return shape;
    return std::nullopt;
  }
  if (op == "VariableShape" && node.input(0) &&
      node.input(0).node->output_handle(node.input(0).index).size() == 1) {
    return node.input(0).node->output_handle(node.input(0).index)[0].shape;
  }
  if (op == "Cast" || op == "Identity") return ShapeHeldBy(node.input(0), depth + 1);
  if (const std::optional<Tensor> value = EvaluateConstant(output)) {
    const absl::StatusOr<PartialShape> shape = ShapeFromTensor(*value);
    if (shape.ok()) return *shape;
    return std::nullopt;
  }
  if (op == "Pack" && node.num_inputs() > 0 && node.input(0).shape().rank() <= 0)
    return PackedDims(node);
  if (op == "ConcatV2") return ConcatenatedDims(node, 0, node.num_inputs() - 1, depth);
  if (op == "Concat") return ConcatenatedDims(node, 1, node.num_inputs() - 1, depth);
  if (op == "StridedSlice") {
    if (std::optional<PartialShape> sliced = SlicedDims(node, depth)) return sliced;
  }
  // The length of the vector gives at least the rank.
  const PartialShape& own = output.shape();
  if (own.rank() == 1 && own.dim(0) >= 0 && own.dim(0) <= Shape::kMaxRank) {
    return PartialShape::OfRank(static_cast<int>(own.dim(0)));
  }
  return std::nullopt;
}

}  // namespace

ShapeContext::ShapeContext(Node& node) : node_(node) {}

const std::vector<DTypeAndShape>& ShapeContext::input_handle(int i) const {
  static const auto* none = new std::vector<DTypeAndShape>();
  const muster::Output& input = node_.input(i);
  return input ? input.node->output_handle(input.index) : *none;
}

std::optional<Tensor> ShapeContext::ConstantInput(int i) {
  std::optional<Tensor> value = EvaluateConstant(node_.input(i));
  if (value) constants_used_.emplace_back(i, *value);
  return value;
}

absl::StatusOr<PartialShape> ShapeContext::InputAsShape(int i) {
  RETURN_IF_ERROR(WithRank(input(i), 1).status());
  if (const std::optional<Tensor> value = ConstantInput(i)) return ShapeFromTensor(*value);
  return ShapeHeldBy(node_.input(i), 0).value_or(PartialShape());
}

absl::StatusOr<std::optional<int64_t>> ShapeContext::ScalarInput(int i) {
  const std::optional<Tensor> value = ConstantInput(i);
  if (!value) return std::optional<int64_t>();
  if (value->rank() != 0)
    return InvalidArgument("Input must be scalar but has rank ", value->rank());
  ASSIGN_OR_RETURN(Dims dims, IntegerValues(*value));
  return std::optional<int64_t>(dims[0]);
}

absl::StatusOr<PartialShape> ShapeContext::WithRank(const PartialShape& shape, int rank) const {
  if (!shape.known_rank()) return PartialShape::OfRank(rank);
  if (shape.rank() != rank)
    return InvalidArgument("Shape must be rank ", rank, " but is rank ", shape.rank());
  return shape;
}

absl::StatusOr<PartialShape> ShapeContext::WithRankAtLeast(const PartialShape& shape,
                                                           int rank) const {
  if (shape.known_rank() && shape.rank() < rank) {
    return InvalidArgument("Shape must be at least rank ", rank, " but is rank ", shape.rank());
  }
  return shape;
}

absl::StatusOr<PartialShape> ShapeContext::WithRankAtMost(const PartialShape& shape,
                                                          int rank) const {
  if (shape.known_rank() && shape.rank() > rank) {
    return InvalidArgument("Shape must be at most rank ", rank, " but is rank ", shape.rank());
  }
  return shape;
}

absl::StatusOr<int64_t> ShapeContext::MergeDims(int64_t a, int64_t b) {
  if (a < 0) return b;
  if (b < 0 || a == b) return a;
  return InvalidArgument("Dimensions must be equal, but are ", a, " and ", b);
}

PartialShape ShapeContext::Subshape(const PartialShape& shape, int begin, int end) {
  if (!shape.known_rank()) return PartialShape();
  const int rank = shape.rank();
  begin = std::clamp(begin < 0 ? begin + rank : begin, 0, rank);
  end = std::clamp(end < 0 ? end + rank : end, begin, rank);
  return PartialShape(Dims(shape.dims().begin() + begin, shape.dims().begin() + end));
}

PartialShape ShapeContext::Subshape(const PartialShape& shape, int begin) {
  return Subshape(shape, begin, shape.known_rank() ? shape.rank() : 0);
}

PartialShape ShapeContext::Concatenate(const PartialShape& a, const PartialShape& b) {
  if (!a.known_rank() || !b.known_rank()) return PartialShape();
  Dims dims = a.dims();
  dims.insert(dims.end(), b.dims().begin(), b.dims().end());
  return PartialShape(std::move(dims));
}

int64_t ShapeContext::MultiplyDims(int64_t a, int64_t b) {
  if (a == 0 || b == 0) return 0;
  if (a < 0 || b < 0) return -1;
  return MultiplyWithoutOverflow(a, b).value_or(-1);
}

absl::Status UnknownShape(ShapeContext& c) {
  for (int i = 0; i < c.num_outputs(); ++i) c.SetOutput(i, PartialShape());
  return absl::OkStatus();
}

absl::Status UnchangedShape(ShapeContext& c) {
  c.SetOutput(0, c.input(0));
  if (!c.input_handle(0).empty()) c.SetOutputHandle(0, c.input_handle(0));
  return absl::OkStatus();
}

absl::Status ScalarShape(ShapeContext& c) {
  for (int i = 0; i < c.num_outputs(); ++i) c.SetOutput(i, PartialShape::Scalar());
  return absl::OkStatus();
}

absl::Status NoOutputs(ShapeContext&) {
  return absl::OkStatus();
}

absl::StatusOr<PartialShape> BroadcastShapes(const PartialShape& a, const PartialShape& b) {
  if (!a.known_rank() || !b.known_rank()) return PartialShape();
  const int rank = std::max(a.rank(), b.rank());
  PartialShape result = PartialShape::OfRank(rank);
  for (int i = 0; i < rank; ++i) {
    const int ia = i - (rank - a.rank()), ib = i - (rank - b.rank());
    const int64_t da = ia < 0 ? 1 : a.dim(ia), db = ib < 0 ? 1 : b.dim(ib);
    if (da < 0 || db < 0) {
      // A known size above one decides; a one leaves the other open.
      if (da > 1 || db > 1)
        result.Set(i, std::max(da, db));
      else if (da == 1)
        result.Set(i, db);
      else if (db == 1)
        result.Set(i, da);
    } else if (da == db || db == 1) {
      result.Set(i, da);
    } else if (da == 1) {
      result.Set(i, db);
    } else {
      return InvalidArgument("Dimensions must be equal, but are ", da, " and ", db);
    }
  }
  return result;
}

absl::Status BroadcastBinaryShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(PartialShape shape, BroadcastShapes(c.input(0), c.input(1)));
  c.SetOutput(0, std::move(shape));
  return absl::OkStatus();
}

absl::Status MergedShape(ShapeContext& c) {
  PartialShape merged;
  for (int i = 0; i < c.num_inputs(); ++i) {
    ASSIGN_OR_RETURN(merged, merged.Merge(c.input(i)));
  }
  c.SetOutput(0, std::move(merged));
  return absl::OkStatus();
}

absl::Status ReductionShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(bool keep_dims, c.Attr<bool>("keep_dims"));
  const PartialShape input = c.input(0);
  // Older graphs may have axes of any shape.
  constexpr int kFirstStrictProducer = 21;
  if (c.node().graph().versions().producer >= kFirstStrictProducer)
    RETURN_IF_ERROR(c.WithRankAtMost(c.input(1), 1).status());
  const std::optional<Tensor> axes = c.ConstantInput(1);
  if (axes) {
    ASSIGN_OR_RETURN(Dims values, IntegerValues(*axes));
    if (!input.known_rank()) {
      if (keep_dims) c.SetOutput(0, PartialShape());
      return absl::OkStatus();
    }
    absl::flat_hash_set<int64_t> reduced;
    for (int64_t axis : values) {
      if (axis < -input.rank() || axis >= input.rank()) {
        return InvalidArgument("Invalid reduction dimension ", axis, " for input with ",
                               input.rank(), " dimensions.");
      }
      reduced.insert(axis < 0 ? axis + input.rank() : axis);
    }
    PartialShape output = PartialShape::Scalar();
    for (int i = 0; i < input.rank(); ++i) {
      if (!reduced.contains(i))
        output.Append(input.dim(i));
      else if (keep_dims)
        output.Append(1);
    }
    c.SetOutput(0, std::move(output));
    return absl::OkStatus();
  }
  if (keep_dims && input.known_rank()) {
    c.SetOutput(0, PartialShape::OfRank(input.rank()));
    return absl::OkStatus();
  }
  // As many axes as dimensions, whichever they are: TensorFlow leaves the rank open all the same.
  c.SetOutput(0, PartialShape());
  return absl::OkStatus();
}

absl::StatusOr<WindowSize> WindowedOutputSize(int64_t input, int64_t filter, int64_t dilation,
                                              int64_t stride, absl::string_view padding,
                                              int64_t explicit_before, int64_t explicit_after) {
  if (stride <= 0) return InvalidArgument("Stride must be > 0, but got ", stride);
  if (dilation < 1) return InvalidArgument("Dilation rate must be >= 1, but got ", dilation);
  if (filter < 0 || input < 0) {
    WindowSize unknown;
    if (padding == "SAME" && input >= 0) unknown.output = (input + stride - 1) / stride;
    return unknown;
  }
  const int64_t effective = filter == 0 ? 0 : (filter - 1) * dilation + 1;
  WindowSize size;
  if (padding == "SAME") {
    size.output = (input + stride - 1) / stride;
    const int64_t total = std::max<int64_t>((size.output - 1) * stride + effective - input, 0);
    size.padding_before = total / 2;
    size.padding_after = total - size.padding_before;
    return size;
  }
  size.padding_before = explicit_before;
  size.padding_after = explicit_after;
  const int64_t padded = input + explicit_before + explicit_after;
  size.output = (padded - effective + stride) / stride;
  if (size.output < 0) {
    return InvalidArgument("Computed output size would be negative: ", size.output,
                           " [input_size: ", input, ", effective_filter_size: ", effective,
                           ", stride: ", stride, "]");
  }
  return size;
}

std::optional<Tensor> ConstantValue(Output output) {
  static const auto* followed = new absl::flat_hash_set<absl::string_view>{
      "Const",    "Shape",        "Size", "Rank", "Range", "Cast",    "Concat",
      "ConcatV2", "ConcatOffset", "Pack", "Fill", "Equal", "NotEqual"};
  // Every op on the way must be one that the front end looks through, or emitted graphs would
  // differ.
  std::vector<const Node*> open = {output.node};
  absl::flat_hash_set<const Node*> seen;
  while (!open.empty()) {
    const Node* node = open.back();
    open.pop_back();
    if (!seen.insert(node).second) continue;
    if (!followed->contains(node->op())) return std::nullopt;
    if (node->op() == "Shape" || node->op() == "Size" || node->op() == "Rank") continue;
    for (const Output& input : node->inputs()) open.push_back(input.node);
  }
  return EvaluateConstant(output, int64_t{1} << 26);
}

PartialShape ConstantValueAsShape(Output output) {
  return ShapeHeldBy(output, 0).value_or(PartialShape());
}

}  // namespace muster
