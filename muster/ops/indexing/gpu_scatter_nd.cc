#include "muster/ops/indexing/gpu_scatter_nd.h"

#include "absl/strings/str_cat.h"

#include "muster/ops/indexing/moving.h"

namespace muster {

GpuNdScatterer::GpuNdScatterer(GpuKernel& kernel, const char* how, DType dtype, DType index)
    : scatter_(kernel, "indexing/scatter_nd.cu",
               absl::StrCat("ScatterNd<", how, ", ", GpuTypeName(dtype), ", ", GpuTypeName(index),
                            ">")) {}

absl::Status GpuNdScatterer::Scatter(const Tensor& indices, const Tensor& updates, int64_t inner,
                                     Tensor& output) const {
  if (updates.num_elements() == 0) return absl::OkStatus();
  const int outer = indices.rank() - 1;
  ASSIGN_OR_RETURN(const TupleAxes axes, TupleAxesOf(output.shape(), indices.dim(outer)));
  const int64_t rows = indices.shape().ElementsIn(0, outer);
  return scatter_.Launch(GridForRows(scatter_, rows, inner), GpuIn(indices), GpuIn(updates),
                         GpuOut(output), axes, rows, inner);
}

}  // namespace muster
