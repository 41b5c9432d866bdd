#include "muster/ops/segments/segment_gpu.h"

#include "absl/strings/str_cat.h"

#include "muster/ops/math/elementwise_gpu.h"

namespace muster {
namespace {

constexpr char kSegmentFile[] = "segments/unsorted_segment.cu";

}  // namespace

GpuSegments::GpuSegments(GpuKernel& kernel, const char* op, DType dtype, DType index)
    : start_(kernel, kSegmentFile,
             absl::StrCat("StartSegments<", op, ", ", GpuTypeName(dtype), ">")),
      join_(kernel, kSegmentFile,
            absl::StrCat("JoinSegments<", op, ", ", GpuTypeName(dtype), ", ", GpuTypeName(index),
                         ">")) {
  if (IsSmallFloat(dtype))
    round_.emplace(kernel, "math/cast.cu", absl::StrCat("Cast<float, ", GpuTypeName(dtype), ">"));
}

absl::Status GpuSegments::Run(KernelContext& c, const Tensor& data, const Tensor& ids,
                              int64_t inner, Tensor& output) const {
  const int64_t count = output.num_elements();
  if (count == 0) return absl::OkStatus();
  Tensor results = output;
  if (round_.has_value()) {
    ASSIGN_OR_RETURN(results, c.AllocateTemporary(DType::kFloat, output.shape()));
  }
  RETURN_IF_ERROR(start_.LaunchForEach(count, GpuOut(results), count));
  RETURN_IF_ERROR(join_.LaunchForEach(data.num_elements(), GpuIn(data), GpuIn(ids), GpuOut(results),
                                      data.num_elements(), GpuDivisor(inner), output.dim(0)));
  if (!round_.has_value()) return absl::OkStatus();
  return round_->LaunchForEach(GpuPacks(count, DType::kFloat), GpuIn(results), GpuOut(output),
                               count, int32_t{0});
}

}  // namespace muster
