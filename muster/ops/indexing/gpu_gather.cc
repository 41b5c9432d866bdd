#include "muster/ops/indexing/gpu_gather.h"

#include "absl/strings/str_cat.h"

#include "muster/ops/indexing/moving.h"

namespace muster {
namespace {

constexpr char kFile[] = "indexing/gather.cu";

std::string Expression(size_t bytes, DType index) {
  return absl::StrCat("Gather<", GpuWordName(bytes), ", ", GpuTypeName(index), ">");
}

}  // namespace

GpuGatherer::GpuGatherer(GpuKernel& kernel, DType dtype, DType index)
    : gather_{{{kernel, kFile, Expression(DTypeSize(dtype), index)},
               {kernel, kFile, Expression(sizeof(Word16), index)}}} {}

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

}  // namespace muster
