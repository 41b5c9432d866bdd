#include "muster/ops/indexing/strided_slice_spec.h"

#include <algorithm>

namespace muster {
namespace {

constexpr int kMaxPositions = 32;
constexpr int kNewAxis = -2;
constexpr int kShrinkAxis = -1;

bool Bit(int64_t mask, int i) {
  return i < 64 && ((static_cast<uint64_t>(mask) >> i) & 1) != 0;
}

// What the positions of the specification say about one dimension of the input.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t stride = 1;
  bool begin_open = true;
  bool end_open = true;
  bool shrink = false;
};

struct Expansion {
  std::vector<Range> ranges;     // one per input dimension
  std::vector<int> result_axes;  // input dimension, kNewAxis or kShrinkAxis
};

// Spreads the positions over the input's dimensions: the ellipsis (at the end when none is given)
// takes what is left.
absl::StatusOr<Expansion> Expand(int rank, const std::optional<Dims>& begin,
                                 const std::optional<Dims>& end, const Dims& strides,
                                 const StridedSliceMasks& masks) {
  const int positions = static_cast<int>(strides.size());
  int ellipsis = positions;
  int new_axes_after_ellipsis = 0;
  for (int i = 0; i < positions; ++i) {
    if (Bit(masks.ellipsis, i)) ellipsis = i;
    if (i > ellipsis && Bit(masks.new_axis, i)) ++new_axes_after_ellipsis;
  }
  const int all_positions = std::max(positions, ellipsis + 1);
  Expansion expansion;
  expansion.ranges.resize(rank);
  int dim = 0;
  for (int i = 0; i < all_positions; ++i) {
    if (i == ellipsis) {
      const int next = std::min(rank - (all_positions - i) + 1 + new_axes_after_ellipsis, rank);
      for (; dim < next; ++dim) expansion.result_axes.push_back(dim);
    } else if (Bit(masks.new_axis, i)) {
      expansion.result_axes.push_back(kNewAxis);
    } else {
      if (dim == rank) {
        return InvalidArgument("Index out of range using input dim ", dim, "; input has only ",
                               rank, " dims");
      }
      Range& range = expansion.ranges[dim];
      if (begin) range.begin = (*begin)[i];
      if (end) range.end = (*end)[i];
      range.stride = strides[i];
      range.begin_open = Bit(masks.begin, i);
      range.end_open = Bit(masks.end, i);
      range.shrink = Bit(masks.shrink_axis, i);
      expansion.result_axes.push_back(range.shrink ? kShrinkAxis : dim);
      ++dim;
    }
  }
  return expansion;
}

int64_t RangeSize(int64_t length, int64_t stride) {
  if (length == 0 || (length < 0) != (stride < 0)) return 0;
  return length / stride + (length % stride != 0 ? 1 : 0);
}

}  // namespace

absl::StatusOr<StridedSliceMasks> StridedSliceMasks::FromAttrs(const Node& node) {
  StridedSliceMasks masks;
  ASSIGN_OR_RETURN(masks.begin, node.Attr<int64_t>("begin_mask"));
  ASSIGN_OR_RETURN(masks.end, node.Attr<int64_t>("end_mask"));
  ASSIGN_OR_RETURN(masks.ellipsis, node.Attr<int64_t>("ellipsis_mask"));
  ASSIGN_OR_RETURN(masks.new_axis, node.Attr<int64_t>("new_axis_mask"));
  ASSIGN_OR_RETURN(masks.shrink_axis, node.Attr<int64_t>("shrink_axis_mask"));
  return masks;
}

absl::StatusOr<StridedSliceSpec> ResolveStridedSlice(const PartialShape& input,
                                                     const std::optional<Dims>& begin,
                                                     const std::optional<Dims>& end,
                                                     const Dims& strides,
                                                     const StridedSliceMasks& masks) {
  const int rank = input.rank();
  if (strides.size() > kMaxPositions) {
    return InvalidArgument("Expected at most ", kMaxPositions, " slice positions, but got ",
                           strides.size());
  }
  if ((begin && begin->size() != strides.size()) || (end && end->size() != strides.size())) {
    return InvalidArgument("Expected begin, end, and strides to be 1D equal size tensors, but got ",
                           strides.size(), " strides");
  }
  if (masks.ellipsis != 0 && (masks.ellipsis & (masks.ellipsis - 1)) != 0) {
    return InvalidArgument("Multiple ellipses in slice spec not allowed");
  }
  ASSIGN_OR_RETURN(const Expansion expansion, Expand(rank, begin, end, strides, masks));
  StridedSliceSpec spec;
  spec.box = PartialShape::Scalar();
  spec.result = PartialShape::Scalar();
  const bool known_range = begin.has_value() && end.has_value();
  for (int i = 0; i < rank; ++i) {
    Range range = expansion.ranges[i];
    const int64_t dim = input.dim(i);
    const int64_t stride = range.stride;
    if (stride == 0) return InvalidArgument("strides[", i, "] must be non-zero");
    if (range.shrink && stride <= 0)
      return InvalidArgument("only stride 1 allowed on non-range indexing.");
    const bool all = range.begin_open && range.end_open && !range.shrink;
    int64_t size = -1;
    bool whole = all && stride == 1;
    // Positions that the ellipsis stands for are known even when begin and end are not.
    if (dim >= 0 && range.shrink && known_range) {
      const int64_t index = range.begin < 0 ? range.begin + dim : range.begin;
      if (index < 0 || index >= dim) {
        return InvalidArgument("slice index ", range.begin, " of dimension ", i, " out of bounds.");
      }
      range.begin = index;
      range.end = index + 1;
      whole = stride == 1 && dim == 1;
      size = 1;
    } else if (range.shrink) {
      size = 1;
    } else if (dim >= 0 && (known_range || all)) {
      const int64_t low = stride > 0 ? 0 : -1, high = stride > 0 ? dim : dim - 1;
      const auto clamp = [&](int64_t x) { return std::clamp(x < 0 ? x + dim : x, low, high); };
      range.begin = range.begin_open ? (stride > 0 ? low : high) : clamp(range.begin);
      range.end = range.end_open ? (stride > 0 ? high : low) : clamp(range.end);
      size = RangeSize(range.end - range.begin, stride);
      whole = stride == 1 && range.begin == 0 && range.end == dim;
    }
    spec.is_identity = spec.is_identity && whole;
    spec.is_row_range = spec.is_row_range && (whole || (i == 0 && stride == 1));
    spec.begin.push_back(range.begin);
    spec.end.push_back(range.end);
    spec.strides.push_back(stride);
    spec.box.Append(size);
  }
  for (int axis : expansion.result_axes) {
    if (axis == kShrinkAxis) continue;
    spec.result.Append(axis == kNewAxis ? 1 : spec.box.dim(axis));
    spec.result_dims.push_back(axis == kNewAxis ? -1 : axis);
  }
  return spec;
}

absl::StatusOr<Dims> SliceIndices(const Tensor& tensor) {
  if (tensor.rank() != 1) {
    return InvalidArgument(
        "Expected begin, end, and strides to be 1D equal size tensors, but got shape ",
        tensor.shape().ToString());
  }
  if (tensor.dtype() == DType::kInt16) {
    const absl::Span<const int16_t> values = tensor.values<int16_t>();
    return Dims(values.begin(), values.end());
  }
  return IntegerValues(tensor);
}

absl::StatusOr<StridedSliceSpec> ResolveStridedSlice(const Shape& input, const Tensor& begin,
                                                     const Tensor& end, const Tensor& strides,
                                                     const StridedSliceMasks& masks) {
  if (begin.rank() != 1 || end.rank() != 1 || strides.rank() != 1 || begin.dim(0) != end.dim(0) ||
      begin.dim(0) != strides.dim(0)) {
    return InvalidArgument(
        "Expected begin, end, and strides to be 1D equal size tensors, but got shapes ",
        begin.shape().ToString(), ", ", end.shape().ToString(), ", and ",
        strides.shape().ToString(), " instead.");
  }
  ASSIGN_OR_RETURN(std::optional<Dims> begin_values, SliceIndices(begin));
  ASSIGN_OR_RETURN(std::optional<Dims> end_values, SliceIndices(end));
  ASSIGN_OR_RETURN(const Dims stride_values, SliceIndices(strides));
  return ResolveStridedSlice(PartialShape(input), begin_values, end_values, stride_values, masks);
}

}  // namespace muster
