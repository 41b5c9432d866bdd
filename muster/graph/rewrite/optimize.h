// Rewrites of a step's graph that keep its results: constant folding, common subexpressions,
// arithmetic and fusion.
#pragma once

#include <memory>

#include "muster/graph/graph.h"

namespace muster {

struct OptimizeOptions {
  bool fold_constants = true;
  bool simplify = true;
  bool merge_common_nodes = true;
  bool fuse = true;
};

// Changes what it can and returns the graph to run: feeds and fetches (_Arg, _Retval, _Send, _Recv)
// and nodes with effects stay, in their order.
absl::StatusOr<std::unique_ptr<Graph>> OptimizeGraph(std::unique_ptr<Graph> graph,
                                                     const OptimizeOptions& options = {});

// What a rewrite says to a kernel that changes rows on a GPU: gradients of one row are summed
// first. Without this attribute the row is changed by one after the other.
inline constexpr char kSumsRepeatedRows[] = "_sums_repeated_rows";
// An attribute that rewriting gives to cross entropies on GPUs: what their second output is
// multiplied by.
inline constexpr char kBackpropScale[] = "_backprop_scale";

// Which products have a function of their own on GPUs: matrices with at most so many elements in
// the result, and so many in each sum.
inline constexpr int64_t kMostElementsOfSmallProducts = int64_t{1} << 15;
inline constexpr int64_t kMostInnerOfSmallProducts = 128;

}  // namespace muster
