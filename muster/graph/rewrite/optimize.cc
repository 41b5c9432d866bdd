#include "muster/graph/rewrite/optimize.h"

#include "muster/base/status.h"
#include "muster/graph/rewrite/passes.h"

namespace muster {

absl::StatusOr<std::unique_ptr<Graph>> OptimizeGraph(std::unique_ptr<Graph> graph,
                                                     const OptimizeOptions& options) {
  GraphRewriter rewriter(*graph);
  if (options.fold_constants) RETURN_IF_ERROR(FoldConstants(rewriter));
  if (options.simplify) RETURN_IF_ERROR(Simplify(rewriter));
  // Before equal nodes are merged: tables that are read at the same indices each have a Unique.
  if (options.fuse) RETURN_IF_ERROR(SumRepeatedRows(rewriter));
  if (options.merge_common_nodes) RETURN_IF_ERROR(MergeCommonNodes(rewriter));
  if (options.fuse) {
    RETURN_IF_ERROR(Fuse(rewriter));
    RETURN_IF_ERROR(FuseElementwise(rewriter));
    RETURN_IF_ERROR(FuseBatchNorm(rewriter));
    RETURN_IF_ERROR(ScaleCrossEntropy(rewriter));
    RETURN_IF_ERROR(SumColumns(rewriter));
    RETURN_IF_ERROR(JoinSums(rewriter));
    RETURN_IF_ERROR(SumReluGradients(rewriter));
    RETURN_IF_ERROR(SumColumnsOfProducts(rewriter));
  }
  return graph;
}

}  // namespace muster
