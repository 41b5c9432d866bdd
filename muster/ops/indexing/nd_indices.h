// Index tuples of GatherNd and the ScatterNd family.
#pragma once

#include <vector>

#include "muster/ops/op.h"

namespace muster {

// Slices that GatherNd picks: `count` index tuples of `depth` indices each give a result of
// `shape`.
struct GatherNdPlan {
  int depth = 0;
  int64_t count = 0;
  Shape shape;
};
absl::StatusOr<GatherNdPlan> PlanGatherNd(const Tensor& params, const Tensor& indices);

// For every tuple in the last axis of `indices` the number of the slice of `shape` that it names.
// Otherwise InvalidArgument "indices[0] = [5] does not index into <what> [3]", or -1 where `node`
// has the policy to ignore such tuples. Requires: indices has at least one axis, the last one no
// longer than shape's rank.
absl::StatusOr<std::vector<int64_t>> FlatSlices(const Tensor& indices, const Shape& shape,
                                                absl::string_view what, const Node& node);

}  // namespace muster
