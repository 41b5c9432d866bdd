// The rewrites that OptimizeGraph is made of. Each notes its changes in the rewriter and commits
// them.
#pragma once

#include "muster/graph/rewriter.h"

namespace muster {

// Computes what follows from constants and static shapes alone. A node becomes a Const that waits
// for whatever the node waited for, directly or through its constants, so that it stays in its loop
// and dies with its branch.
absl::Status FoldConstants(GraphRewriter& rewriter);

// Takes out nodes that hand on their input bit for bit, and detours of control edges.
absl::Status Simplify(GraphRewriter& rewriter);

// Of nodes that compute the same from the same, one stays.
absl::Status MergeCommonNodes(GraphRewriter& rewriter);

// MatMul and Conv2D with a bias and an activation behind them become one node.
absl::Status Fuse(GraphRewriter& rewriter);

// A function of one operand takes in the sum, difference, product or quotient that it alone reads.
absl::Status FuseElementwise(GraphRewriter& rewriter);

}  // namespace muster
