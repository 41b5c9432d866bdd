// Einsum on GPUs.
#include <algorithm>

#include "muster/ops/gpu_kernel.h"
#include "muster/ops/linalg/cublas.h"
#include "muster/ops/linalg/einsum_plan.h"

namespace muster {
namespace {

// As in einsum.cu.
constexpr int kMostAxes = 16;
struct GpuAxes {
  int64_t count = 1;
  int64_t rank = 0;
  int64_t sizes[kMostAxes] = {};
  int64_t strides[kMostAxes] = {};
};

// Without axes of size one, and with neighbours that are one axis joined.
absl::StatusOr<GpuAxes> JoinedAxes(const EinsumAxes& axes) {
  GpuAxes joined;
  joined.count = axes.count();
  for (size_t i = 0; i < axes.sizes.size(); ++i) {
    const int64_t size = axes.sizes[i], stride = axes.strides[i];
    if (size == 1) continue;
    const int64_t last = joined.rank - 1;
    if (last >= 0 && joined.strides[last] == size * stride) {
      joined.sizes[last] *= size;
      joined.strides[last] = stride;
      continue;
    }
    if (joined.rank == kMostAxes)
      return Unimplemented("Einsum over more than ", kMostAxes, " axes on a GPU");
    joined.sizes[joined.rank] = size;
    joined.strides[joined.rank] = stride;
    ++joined.rank;
  }
  return joined;
}
bool IsDense(const GpuAxes& axes) {
  return axes.rank == 0 || (axes.rank == 1 && axes.strides[0] == 1);
}

class GpuEinsum : public GpuKernel {
 public:
  explicit GpuEinsum(DType dtype)
      : pack_(*this, "linalg/einsum.cu", absl::StrCat("Pack<", GpuTypeName(dtype), ">")),
        unpack_(*this, "linalg/einsum.cu", absl::StrCat("Unpack<", GpuTypeName(dtype), ">")) {}

  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(equation_, ParseEinsum(setup.node()));
    RETURN_IF_ERROR(GpuKernel::Init(setup));
    return equation_.inputs.size() == 2 ? PrepareGpuProducts(gpu()) : absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    ASSIGN_OR_RETURN(const EinsumPlan plan, PlanEinsum(equation_, c));
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, plan.output));
    if (output->num_elements() == 0) return absl::OkStatus();
    ASSIGN_OR_RETURN(const GpuAxes places, JoinedAxes(plan.places));
    if (c.num_inputs() == 1 && IsDense(places))
      return PackTo(c.input(0), plan.operands[0], *output);
    if (c.num_inputs() == 1) {
      ASSIGN_OR_RETURN(Tensor packed, c.AllocateTemporary(output->dtype(), Shape({places.count})));
      RETURN_IF_ERROR(PackTo(c.input(0), plan.operands[0], packed));
      return Unpack(packed, places, *output);
    }
    std::array<Operand, 2> packed;
    for (int i = 0; i < 2; ++i) {
      ASSIGN_OR_RETURN(packed[i], Packed(c, c.input(i), plan.operands[i]));
    }
    if (IsDense(places)) return Multiply(packed, plan, *output);
    ASSIGN_OR_RETURN(Tensor product,
                     c.AllocateTemporary(output->dtype(), Shape({plan.batch, plan.m, plan.n})));
    RETURN_IF_ERROR(Multiply(packed, plan, product));
    return Unpack(product, places, *output);
  }

 private:
  struct Operand {
    Tensor matrices;
    bool is_transposed = false;  // [batch, summed, free]
  };

  // The operand as it is where that is a layout that can be multiplied.
  absl::StatusOr<Operand> Packed(KernelContext& c, const Tensor& from,
                                 const EinsumPlan::Operand& operand) {
    ASSIGN_OR_RETURN(const GpuAxes kept, JoinedAxes(operand.kept));
    if (operand.summed.count() == 1) {
      if (IsDense(kept)) return Operand{from};
      ASSIGN_OR_RETURN(const GpuAxes transposed, JoinedAxes(Transposed(operand)));
      if (IsDense(transposed)) return Operand{from, true};
    }
    ASSIGN_OR_RETURN(Tensor packed, c.AllocateTemporary(from.dtype(), Shape({kept.count})));
    RETURN_IF_ERROR(PackTo(from, operand, packed));
    return Operand{std::move(packed)};
  }
  static EinsumAxes Transposed(const EinsumPlan::Operand& operand) {
    EinsumAxes axes = operand.kept;
    for (Dims* const dims : {&axes.sizes, &axes.strides}) {
      const auto free = dims->begin() + operand.num_batch;
      std::rotate(free, free + operand.num_free, dims->end());
    }
    return axes;
  }
  absl::Status PackTo(const Tensor& from, const EinsumPlan::Operand& operand, Tensor& to) {
    constexpr int64_t kManyForThread = 64;
    ASSIGN_OR_RETURN(const GpuAxes kept, JoinedAxes(operand.kept));
    ASSIGN_OR_RETURN(const GpuAxes summed, JoinedAxes(operand.summed));
    const bool by_blocks = summed.count > kManyForThread;
    GpuGrid grid = pack_.GridForEach(kept.count);
    if (by_blocks) grid.blocks_x = static_cast<unsigned>(std::min<int64_t>(kept.count, 1 << 30));
    return pack_.Launch(grid, GpuIn(from), GpuOut(to), kept, summed, by_blocks);
  }
  absl::Status Unpack(const Tensor& from, const GpuAxes& places, Tensor& to) {
    // Where a name is twice in the output, only a diagonal of it is written.
    if (places.count < to.num_elements()) {
      RETURN_IF_ERROR(
          gpu().Fill(to.raw(), 0, static_cast<size_t>(to.num_elements()) * DTypeSize(to.dtype())));
    }
    return unpack_.LaunchForEach(places.count, GpuIn(from), GpuOut(to), places);
  }
  absl::Status Multiply(const std::array<Operand, 2>& packed, const EinsumPlan& plan, Tensor& to) {
    GpuProducts products;
    products.shape.m = plan.m;
    products.shape.n = plan.n;
    products.shape.k = plan.k;
    products.shape.transpose_a = packed[0].is_transposed;
    products.shape.transpose_b = !packed[1].is_transposed;
    products.count = plan.batch;
    products.a = packed[0].matrices.raw();
    products.b = packed[1].matrices.raw();
    products.c = to.raw();
    products.stride_a = plan.m * plan.k;
    products.stride_b = plan.n * plan.k;
    products.stride_c = plan.m * plan.n;
    return MultiplyOnGpu(gpu(), to.dtype(), products);
  }

  GpuFunction pack_;
  GpuFunction unpack_;
  EinsumEquation equation_;
};

}  // namespace

KernelFactory MakeGpuEinsum(DType dtype) {
  return [=] { return std::make_unique<GpuEinsum>(dtype); };
}

}  // namespace muster
