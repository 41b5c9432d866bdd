// The rewrites that OptimizeGraph is made of. Each notes its changes in the rewriter and commits
// them.
#pragma once

#include "muster/graph/rewrite/rewriter.h"

namespace muster {

// Computes what follows from constants and static shapes alone. A node becomes a Const that waits
// for whatever the node waited for, directly or through its constants, so that it stays in its loop
// and dies with its branch.
absl::Status FoldConstants(GraphRewriter& rewriter);

// Removes nodes that forward their input bit for bit, and bypasses nodes that control edges need
// not go through.
absl::Status Simplify(GraphRewriter& rewriter);

// Common subexpression elimination: of nodes with the same op, attributes and inputs, one remains.
absl::Status MergeCommonNodes(GraphRewriter& rewriter);

// Most fused ops have kernels for CPUs only. True as well where no device is set.
bool RunsOnCpu(const Node& node);
// A device that is a GPU is set.
bool RunsOnGpu(const Node& node);

// MatMul and Conv2D with a bias and an activation behind them become one node; on GPUs only MatMul,
// and no activation but Relu.
absl::Status Fuse(GraphRewriter& rewriter);

// A unary op absorbs the sum, difference, product or quotient of which it is the only reader.
absl::Status FuseElementwise(GraphRewriter& rewriter);

// On GPUs, a batch normalisation takes the Relu behind it, and a sum between the two, and its
// gradient that of the Relu: one pass over the elements instead of two or three.
absl::Status FuseBatchNorm(GraphRewriter& rewriter);

// On GPUs, cross entropies multiply their gradients by what the mean of the losses gives them.
absl::Status ScaleCrossEntropy(GraphRewriter& rewriter);

// Sums over the rows of a matrix become BiasAddGrad on GPUs.
absl::Status SumColumns(GraphRewriter& rewriter);
// ReluGrad and BiasAddGrad of its result become one node on GPUs.
absl::Status SumReluGradients(GraphRewriter& rewriter);
// A small product and the BiasAddGrad of its second operand become one node on GPUs.
absl::Status SumColumnsOfProducts(GraphRewriter& rewriter);

// Sums of products, and of sums of columns, over many places become one of all their rows, on GPUs.
absl::Status JoinSums(GraphRewriter& rewriter);

// On GPUs, ops that change rows of variables sum the gradients of equal indices by themselves: no
// Unique stands before them, whose result decides about shapes so that the host would wait for it.
absl::Status SumRepeatedRows(GraphRewriter& rewriter);

}  // namespace muster
