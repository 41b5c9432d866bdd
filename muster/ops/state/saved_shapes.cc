#include "muster/ops/state/saved_shapes.h"

#include "muster/checkpoint/tensor_slice.h"

namespace muster {

absl::Status CheckSavedNames(ShapeContext& c, int lists, int tensors) {
  RETURN_IF_ERROR(c.WithRank(c.input(0), 0).status());
  for (int i = 1; i <= lists; ++i) {
    ASSIGN_OR_RETURN(const PartialShape names, c.WithRank(c.input(i), 1));
    if (names.dim(0) >= 0 && names.dim(0) != tensors)
      return InvalidArgument("Dimension must be ", tensors, " but is ", names.dim(0));
  }
  return absl::OkStatus();
}

absl::StatusOr<PartialShape> ShapeOfSlice(const std::string& shape_and_slice) {
  if (shape_and_slice.empty()) return PartialShape();
  ASSIGN_OR_RETURN(const ShapeAndSlice parsed, ParseShapeAndSlice(shape_and_slice));
  return PartialShape(parsed.slice_shape);
}

}  // namespace muster
