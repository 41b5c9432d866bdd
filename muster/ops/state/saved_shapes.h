// Shapes of what is saved and restored, as TensorFlow's shape rules give them.
#pragma once

#include "muster/ops/op.h"

namespace muster {

// Ranks of file names and of lists of names.
absl::Status CheckSavedNames(ShapeContext& c, int lists, int tensors);
// Output 0 from a constant shape_and_slice, unknown otherwise.
absl::StatusOr<PartialShape> ShapeOfSlice(const std::string& shape_and_slice);

}  // namespace muster
