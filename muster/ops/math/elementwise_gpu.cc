#include "muster/ops/math/elementwise_gpu.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace muster {
namespace {

constexpr int64_t kPackBytes = 16;

class GpuUnaryKernel final : public GpuKernel {
 public:
  GpuUnaryKernel(const char* file, const char* function, DType dtype)
      : run_(*this, file, absl::StrCat("Unary<", function, ", ", GpuTypeName(dtype), ">")) {}

  absl::Status Compute(KernelContext& c) override {
    // No copy of the tensor itself: its memory is only reused while it has no other owner.
    const void* const x = GpuIn(c.input(0));
    const Shape shape = c.input(0).shape();
    const int64_t count = shape.num_elements();
    ASSIGN_OR_RETURN(Tensor* const y, c.ForwardOrAllocate({0}, 0, shape));
    return run_.LaunchForEach(GpuPacks(count, WiderOf(c.input_type(0), y->dtype())), x, GpuOut(*y),
                              count);
  }

 private:
  GpuFunction run_;
};

class GpuBinaryKernel : public GpuKernel {
 public:
  GpuBinaryKernel(const char* file, const char* function, DType dtype, bool broadcasts = true)
      : broadcasts_(broadcasts),
        run_(*this, file, absl::StrCat("Binary<", function, ", ", GpuTypeName(dtype), ">")) {}

  absl::Status Compute(KernelContext& c) override {
    const void* const x = GpuIn(c.input(0));
    const void* const y = GpuIn(c.input(1));
    ASSIGN_OR_RETURN(const BroadcastPlan plan,
                     PlanBinary(c.input(0).shape(), c.input(1).shape(), broadcasts_));
    ASSIGN_OR_RETURN(const GpuBroadcast<2> broadcast, MakeGpuBroadcast<2>(plan));
    ASSIGN_OR_RETURN(Tensor* const z, c.ForwardOrAllocate({0, 1}, 0, plan.output()));
    return run_.LaunchForEach(GpuPacks(broadcast.count, WiderOf(c.input_type(0), z->dtype())), x, y,
                              GpuOut(*z), broadcast);
  }

 private:
  const bool broadcasts_;
  GpuFunction run_;
};

class GpuEqualityKernel final : public GpuBinaryKernel {
 public:
  GpuEqualityKernel(const char* function, DType dtype, bool mismatch)
      : GpuBinaryKernel("math/binary.cu", function, dtype), mismatch_(mismatch) {}
  absl::Status Init(KernelSetup& setup) override {
    RETURN_IF_ERROR(GpuBinaryKernel::Init(setup));
    ASSIGN_OR_RETURN(shape_error_, setup.Attr<bool>("incompatible_shape_error"));
    return absl::OkStatus();
  }
  absl::Status Compute(KernelContext& c) override {
    if (!shape_error_ && !BroadcastShape(c.input(0).shape(), c.input(1).shape()).ok()) {
      ASSIGN_OR_RETURN(Tensor* const z, c.AllocateOutput(0, Shape()));
      return gpu().Fill(z->raw(), mismatch_ ? 1 : 0, 1);
    }
    return GpuBinaryKernel::Compute(c);
  }

 private:
  const bool mismatch_;
  bool shape_error_ = true;
};

}  // namespace

std::vector<DType> With(std::vector<DType> types, const std::vector<DType>& more) {
  types.insert(types.end(), more.begin(), more.end());
  return types;
}

GpuKernels UnaryOnGpu(const char* function, const char* file) {
  return [=](DType dtype) -> KernelFactory {
    return [=] { return std::make_unique<GpuUnaryKernel>(file, function, dtype); };
  };
}
GpuKernels BinaryOnGpu(const char* function, const char* file) {
  return [=](DType dtype) -> KernelFactory {
    return [=] { return std::make_unique<GpuBinaryKernel>(file, function, dtype); };
  };
}
GpuKernels SameSizeBinaryOnGpu(const char* function) {
  return [=](DType dtype) -> KernelFactory {
    return
        [=] { return std::make_unique<GpuBinaryKernel>("math/binary.cu", function, dtype, false); };
  };
}
GpuKernels ComparisonOnGpu(const char* function, bool mismatch) {
  return [=](DType dtype) -> KernelFactory {
    return [=] { return std::make_unique<GpuEqualityKernel>(function, dtype, mismatch); };
  };
}

// With 2^shift the power of two that is not below the size, and n below 2^31:
// n / size = (n * multiplier / 2^32 + n) / 2^shift (Granlund and Montgomery).
GpuDivisor::GpuDivisor(int64_t number) : size(number) {
  if (size < 1 || size > 0x7FFFFFFF) return;
  while ((int64_t{1} << shift) < size) ++shift;
  const uint64_t excess = (uint64_t{1} << shift) - static_cast<uint64_t>(size);
  multiplier = static_cast<uint32_t>((excess << 32) / static_cast<uint64_t>(size) + 1);
}

template <int operands>
absl::StatusOr<GpuBroadcast<operands>> MakeGpuBroadcast(const BroadcastPlan& plan) {
  using Broadcast = GpuBroadcast<operands>;
  const auto outer = plan.outer();
  if (outer.size() > Broadcast::kMaxOuter) {
    return Unimplemented("Broadcasting to ", plan.output().ToString(),
                         " is not supported on a GPU: it has too many dimensions");
  }
  Broadcast broadcast;
  broadcast.count = plan.output().num_elements();
  broadcast.inner = GpuDivisor(plan.inner());
  for (int k = 0; k < operands; ++k) broadcast.steps[k] = plan.steps(k) ? 1 : 0;
  broadcast.outer = static_cast<int32_t>(outer.size());
  for (size_t d = 0; d < outer.size(); ++d) {
    const BroadcastPlan::Dim& dim = outer[outer.size() - 1 - d];
    broadcast.dims[d].size = GpuDivisor(dim.size);
    std::copy_n(dim.strides.begin(), operands, broadcast.dims[d].strides);
  }
  return broadcast;
}
template absl::StatusOr<GpuBroadcast<1>> MakeGpuBroadcast(const BroadcastPlan& plan);
template absl::StatusOr<GpuBroadcast<2>> MakeGpuBroadcast(const BroadcastPlan& plan);
template absl::StatusOr<GpuBroadcast<3>> MakeGpuBroadcast(const BroadcastPlan& plan);

int64_t GpuPacks(int64_t count, DType widest) {
  const int64_t pack = kPackBytes / static_cast<int64_t>(DTypeSize(widest));
  return (count + pack - 1) / pack;
}
DType WiderOf(DType a, DType b) {
  return DTypeSize(a) > DTypeSize(b) ? a : b;
}
const char* GpuWord(DType dtype) {
  switch (DTypeSize(dtype)) {
    case 1:
      return "uint8";
    case 2:
      return "uint16";
    case 4:
      return "uint32";
    case 8:
      return "uint64";
    default:
      return "Complex128";
  }
}

}  // namespace muster
