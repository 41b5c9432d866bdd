#include "muster/ops/state/row_changes.h"

#include <bit>

#include "absl/strings/str_cat.h"

namespace muster {
namespace {

// Threads that share a row.
int32_t LanesFor(int64_t elements) {
  const auto most = static_cast<uint64_t>(std::clamp<int64_t>(elements, 1, 32));
  return static_cast<int32_t>(std::bit_ceil(most));
}

}  // namespace

FewRows FewRowsOf(const Tensor& indices, int64_t num_rows, int64_t elements, bool sums) {
  FewRows few;
  few.indices = indices.raw();
  few.count = indices.num_elements();
  few.num_rows = num_rows;
  few.elements = elements;
  few.lanes = LanesFor(elements);
  few.sums = sums;
  few.has_wide_indices = indices.dtype() == DType::kInt64;
  return few;
}

GpuGrid GridForFew(const FewRows& few) {
  GpuGrid grid;
  grid.threads_x = kFewThreads;
  grid.blocks_x = static_cast<unsigned>(few.count);
  return grid;
}

GpuRowChanges::GpuRowChanges(GpuKernel& kernel, DType dtype, DType index)
    : order_(kernel, index),
      sum_chunks_(kernel, "state/sum_rows.cu",
                  absl::StrCat("SumChunks<", GpuTypeName(dtype), ">")) {}

absl::StatusOr<GpuRowChanges::Ordered> GpuRowChanges::Order(KernelContext& c,
                                                            const Tensor& gradient,
                                                            const Tensor& indices, int64_t num_rows,
                                                            int64_t elements, bool sums) const {
  const int64_t count = indices.num_elements();
  Ordered ordered;
  ASSIGN_OR_RETURN(ordered.order, order_.Sort(c, indices, num_rows));
  ordered.changes.rows = ordered.order.rows.raw();
  ordered.changes.positions = ordered.order.positions.raw();
  ordered.changes.count = count;
  ordered.changes.num_rows = num_rows;
  ordered.changes.elements = elements;
  ordered.changes.lanes = LanesFor(elements);
  ordered.changes.sums = sums;
  if (!sums) return ordered;
  const DType dtype = gradient.dtype() == DType::kDouble ? DType::kDouble : DType::kFloat;
  const int64_t blocks = (count + kChunk * kChunks - 1) / (kChunk * kChunks);
  ASSIGN_OR_RETURN(ordered.sums, c.AllocateTemporary(dtype, Shape({blocks * kChunks, elements})));
  ASSIGN_OR_RETURN(ordered.sums_of_sums, c.AllocateTemporary(dtype, Shape({blocks, elements})));
  GpuGrid grid;
  grid.blocks_x = static_cast<unsigned>(blocks);
  RETURN_IF_ERROR(sum_chunks_.Launch(grid, GpuIn(gradient), ordered.changes, GpuOut(ordered.sums),
                                     GpuOut(ordered.sums_of_sums)));
  return ordered;
}

}  // namespace muster
