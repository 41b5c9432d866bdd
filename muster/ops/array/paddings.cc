#include "muster/ops/array/paddings.h"

#include "muster/base/status.h"

namespace muster {

absl::StatusOr<std::vector<Padding>> ReadPaddings(const Tensor& paddings, const Shape& input) {
  if (paddings.rank() != 2 || paddings.dim(1) != 2) {
    return InvalidArgument("paddings must be a matrix with 2 columns: ",
                           paddings.shape().ToString());
  }
  if (paddings.dim(0) != input.rank()) {
    return InvalidArgument("The first dimension of paddings must be the rank of inputs",
                           paddings.shape().ToString(), " ", input.ToString());
  }
  ASSIGN_OR_RETURN(const Dims values, IntegerValues(paddings));
  std::vector<Padding> result;
  for (int i = 0; i < input.rank(); ++i) {
    const Padding padding = {values[2 * i], values[2 * i + 1]};
    if (padding.before < 0 || padding.after < 0) {
      return InvalidArgument("Paddings must be non-negative: ", padding.before, " ", padding.after);
    }
    result.push_back(padding);
  }
  return result;
}

absl::StatusOr<Shape> PaddedShape(const Shape& input, const std::vector<Padding>& paddings) {
  Dims dims = input.dims();
  for (size_t i = 0; i < dims.size(); ++i) {
    int64_t sum = 0;
    if (__builtin_add_overflow(dims[i], paddings[i].before, &sum) ||
        __builtin_add_overflow(sum, paddings[i].after, &dims[i])) {
      return InvalidArgument("Padding dimension ", i, " by ", paddings[i].before, " and ",
                             paddings[i].after, " overflows");
    }
  }
  return Shape::Make(dims);
}

absl::Status PaddedShapeRule(ShapeContext& c, int sign) {
  ASSIGN_OR_RETURN(const PartialShape paddings_shape, c.WithRank(c.input(1), 2));
  PartialShape input = c.input(0);
  int64_t rank = -1;
  if (paddings_shape.known_rank()) {
    if (paddings_shape.dim(1) >= 0 && paddings_shape.dim(1) != 2)
      return InvalidArgument("Dimension must be 2 but is ", paddings_shape.dim(1));
    rank = paddings_shape.dim(0);
  }
  if (rank > Shape::kMaxRank) return InvalidArgument("paddings for ", rank, " dimensions");
  if (rank >= 0) {
    ASSIGN_OR_RETURN(input, c.WithRank(input, static_cast<int>(rank)));
  } else {
    rank = input.rank();
  }
  const std::optional<Tensor> paddings = c.ConstantInput(1);
  if (!paddings || rank < 0) {
    c.SetOutput(0, rank < 0 ? PartialShape() : PartialShape::OfRank(static_cast<int>(rank)));
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const Dims values, IntegerValues(*paddings));
  if (static_cast<int64_t>(values.size()) != 2 * rank) {
    return InvalidArgument("paddings must have shape [", rank, ",2], but have ", values.size(),
                           " elements");
  }
  PartialShape output = PartialShape::OfRank(static_cast<int>(rank));
  for (int i = 0; i < rank; ++i) {
    int64_t change = 0;
    if (values[2 * i] < 0 || values[2 * i + 1] < 0)
      return InvalidArgument("Paddings must be non-negative");
    if (__builtin_add_overflow(values[2 * i], values[2 * i + 1], &change)) {
      return InvalidArgument("paddings of dimension ", i, " overflow");
    }
    if (!input.known_rank() || input.dim(i) < 0) continue;
    int64_t size = 0;
    if (sign < 0 && input.dim(i) < change) {
      return InvalidArgument("Negative dimension size caused by subtracting ", change, " from ",
                             input.dim(i));
    }
    if (sign > 0 && __builtin_add_overflow(input.dim(i), change, &size)) {
      return InvalidArgument("paddings of dimension ", i, " do not fit size ", input.dim(i));
    }
    output.Set(i, sign > 0 ? size : input.dim(i) - change);
  }
  c.SetOutput(0, std::move(output));
  return absl::OkStatus();
}

}  // namespace muster
