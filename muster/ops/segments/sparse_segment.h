// What the kernels of SparseSegmentX and their gradients for CPUs and for GPUs share.
#pragma once

#include "muster/ops/op.h"
#include "muster/ops/segments/segment.h"

namespace muster {

// Ranks and sizes of the inputs of SparseSegmentX[WithNumSegments].
absl::Status CheckSparseSegments(const KernelContext& c);
// How many segments there are, where the last id is `last`: -1 where there is none, or where the
// host does not see it.
absl::StatusOr<int64_t> CountSparseSegments(const KernelContext& c, int64_t last);
// The result: `rows` rows like those of input 0.
absl::StatusOr<Shape> RowsLikeInput(const KernelContext& c, int64_t rows);
// Ranks and sizes of the inputs of SparseSegmentXGrad; gives the rows of the result.
absl::StatusOr<int64_t> CheckSparseSegmentGradient(const KernelContext& c);

void AddSparseSegmentsOnGpu(OpBuilder& op, SegmentOp how, bool has_count);
void AddSparseSegmentGradientOnGpu(OpBuilder& op, SegmentOp how);

}  // namespace muster
