#include "muster/ops/indexing/mover.h"

#include <algorithm>

namespace muster {

StridedBox EmbeddedBox(absl::Span<const EmbeddedAxis> axes) {
  Dims outer, inner;
  bool is_empty = false;
  for (const EmbeddedAxis& axis : axes) {
    outer.push_back(axis.size);
    inner.push_back(axis.count);
    is_empty = is_empty || axis.count == 0;
  }
  const Dims to = RowMajorStrides(outer), from = RowMajorStrides(inner);
  StridedBox box;
  for (size_t i = 0; i < axes.size(); ++i) {
    // The step of a single element is never taken, and may be too large to multiply.
    box.Add(axes[i].count, from[i], axes[i].count > 1 ? to[i] * axes[i].step : 0);
    if (!is_empty) box.to_offset += axes[i].first * to[i];
  }
  return box;
}

}  // namespace muster
