#include "muster/ops/indexing/gpu_gather.h"

#include "absl/strings/str_cat.h"

#include "muster/ops/indexing/moving.h"

namespace muster {
namespace {

constexpr char kFile[] = "indexing/gather.cu";
constexpr char kNdFile[] = "indexing/gather_nd.cu";

std::string Expression(const char* function, size_t bytes, DType index) {
  return absl::StrCat(function, "<", GpuWordName(bytes), ", ", GpuTypeName(index), ">");
}

}  // namespace

GpuGatherer::GpuGatherer(GpuKernel& kernel, DType dtype, DType index)
    : gather_{{{kernel, kFile, Expression("Gather", DTypeSize(dtype), index)},
               {kernel, kFile, Expression("Gather", sizeof(Word16), index)}}} {}

absl::Status GpuGatherer::Gather(const Tensor& params, const Tensor& indices, GatherSizes sizes,
                                 Tensor& output) const {
  if (output.num_elements() == 0) return absl::OkStatus();
  const auto element_bytes = static_cast<int64_t>(DTypeSize(params.dtype()));
  const bool wide = RowsAreWide(params.raw(), output.raw(), sizes.inner * element_bytes);
  if (wide) sizes.inner = sizes.inner * element_bytes / static_cast<int64_t>(sizeof(Word16));
  const int64_t rows = sizes.batch * sizes.outer * sizes.indices;
  return gather_[wide].Launch(GridForRows(gather_[wide], rows, sizes.inner), GpuIn(params),
                              GpuIn(indices), GpuOut(output), sizes);
}

GpuNdGatherer::GpuNdGatherer(GpuKernel& kernel, DType dtype, DType index)
    : gather_{{{kernel, kNdFile, Expression("GatherNd", DTypeSize(dtype), index)},
               {kernel, kNdFile, Expression("GatherNd", sizeof(Word16), index)}}} {}

absl::Status GpuNdGatherer::Gather(const Tensor& params, const Tensor& indices,
                                   const GatherNdPlan& plan, Tensor& output) const {
  if (output.num_elements() == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(const TupleAxes axes, TupleAxesOf(params.shape(), plan.depth));
  const auto element_bytes = static_cast<int64_t>(DTypeSize(params.dtype()));
  int64_t inner = params.shape().ElementsIn(plan.depth, params.rank());
  const bool wide = RowsAreWide(params.raw(), output.raw(), inner * element_bytes);
  if (wide) inner = inner * element_bytes / static_cast<int64_t>(sizeof(Word16));
  return gather_[wide].Launch(GridForRows(gather_[wide], plan.count, inner), GpuIn(params),
                              GpuIn(indices), GpuOut(output), axes, plan.count, inner);
}

}  // namespace muster
