#include "muster/ops/gpu_kernel.h"

#include <algorithm>

#include "muster/base/check.h"

namespace muster {
namespace {

constexpr unsigned kThreads = 256;
// More blocks than a card runs at once would only wait.
constexpr int64_t kBlocksPerMultiprocessor = 16;

}  // namespace

GpuFunction::GpuFunction(GpuKernel& kernel, const char* file, std::string expression)
    : file_(file), expression_(std::move(expression)) {
  kernel.functions_.push_back(this);
}

GpuGrid GpuGridForEach(const Gpu& gpu, int64_t count) {
  GpuGrid grid;
  grid.threads_x = kThreads;
  const int64_t wanted = (count + kThreads - 1) / kThreads;
  grid.blocks_x = static_cast<unsigned>(
      std::min<int64_t>(wanted, gpu.multiprocessors() * kBlocksPerMultiprocessor));
  return grid;
}

absl::Status GpuFunction::LaunchWith(const GpuGrid& grid,
                                     absl::Span<const GpuArgument> arguments) const {
  if (grid.blocks_x == 0 || grid.blocks_y == 0 || grid.blocks_z == 0) return absl::OkStatus();
  cuda::Function function = program_->function();
  if (function == nullptr) {
    ASSIGN_OR_RETURN(function, program_->Await());
  }
  return gpu_->Launch(function, grid, arguments);
}

absl::Status GpuKernel::Init(KernelSetup& setup) {
  gpu_ = setup.device().gpu();
  if (gpu_ == nullptr)
    return FailedPrecondition("the device ", setup.device().name(), " is no card of NVIDIA's");
  for (GpuFunction* const function : functions_) {
    function->gpu_ = gpu_;
    function->program_ = &gpu_->programs().Get(function->file_, function->expression_);
  }
  return absl::OkStatus();
}

const char* GpuTypeName(DType dtype) {
  switch (dtype) {
    case DType::kHalf:
      return "Half";
    case DType::kBfloat16:
      return "Bfloat16";
    case DType::kFloat:
      return "float";
    case DType::kDouble:
      return "double";
    case DType::kBool:
      return "bool";
    case DType::kInt8:
    case DType::kQint8:
      return "int8";
    case DType::kUint8:
    case DType::kQuint8:
      return "uint8";
    case DType::kInt16:
    case DType::kQint16:
      return "int16";
    case DType::kUint16:
    case DType::kQuint16:
      return "uint16";
    case DType::kInt32:
    case DType::kQint32:
      return "int32";
    case DType::kUint32:
      return "uint32";
    case DType::kInt64:
      return "int64";
    case DType::kUint64:
      return "uint64";
    case DType::kComplex64:
      return "Complex64";
    case DType::kComplex128:
      return "Complex128";
    default:
      CHECK(false);
  }
  return "";
}

}  // namespace muster
