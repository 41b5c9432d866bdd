#include "muster/ops/control/gpu_sum.h"

#include "absl/strings/str_cat.h"

#include "muster/ops/math/elementwise_gpu.h"

namespace muster {

absl::Status GpuSum(Gpu& gpu, const Tensor& a, const Tensor& b, Tensor& sum) {
  const int64_t count = sum.num_elements();
  if (count == 0) return absl::OkStatus();
  GpuProgram& program =
      gpu.programs().Get("math/add_n.cu", absl::StrCat("AddN<", GpuTypeName(sum.dtype()), ">"));
  ASSIGN_OR_RETURN(const cuda::Function function, program.Await());
  GpuAddends addends;
  addends.at[addends.count++] = GpuIn(a);
  addends.at[addends.count++] = GpuIn(b);
  void* const to = GpuOut(sum);
  const GpuArgument arguments[] = {
      {&addends, sizeof(addends)}, {&to, sizeof(to)}, {&count, sizeof(count)}};
  return gpu.Launch(function, GpuGridForEach(gpu, GpuPacks(count, sum.dtype())), arguments);
}

}  // namespace muster
