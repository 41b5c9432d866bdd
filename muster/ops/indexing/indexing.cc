#include "muster/ops/indexing/indexing.h"

#include "absl/strings/str_join.h"

namespace muster {

std::string PositionText(const Shape& shape, int64_t index) {
  if (shape.is_scalar()) return "";
  Dims position(shape.rank());
  for (int i = shape.rank() - 1; i >= 0; --i) {
    const int64_t size = std::max<int64_t>(shape.dim(i), 1);
    position[i] = index % size;
    index /= size;
  }
  return absl::StrCat("[", absl::StrJoin(position, ","), "]");
}

}  // namespace muster
