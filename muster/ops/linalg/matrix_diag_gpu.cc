// Bands and diagonals of matrices on GPUs.
#include <cstring>

#include "muster/ops/gpu_kernel.h"
#include "muster/ops/linalg/matrix_bands.h"

namespace muster {
namespace {

constexpr char kMatrixFile[] = "linalg/matrix_diag.cu";

std::string MatrixFunction(const char* name, DType dtype) {
  const auto word = [&]() -> const char* {
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
        return "Words16";
    }
  };
  return absl::StrCat(name, "<", word(), ">");
}

// As in matrix_diag.cu.
struct GpuBand {
  int64_t rows, columns;
  int64_t lower, upper;
  int64_t longest;
  int32_t above_is_left, below_is_left;
};
struct GpuPadding {
  unsigned char bytes[16] = {};
};

GpuBand BandOf(const BandGeometry& g) {
  return {g.rows(),
          g.columns(),
          g.band().lower,
          g.band().upper,
          g.longest(),
          g.above_is_left() ? 1 : 0,
          g.below_is_left() ? 1 : 0};
}

class GpuBandPart : public GpuKernel {
 public:
  explicit GpuBandPart(DType dtype) : run_(*this, kMatrixFile, MatrixFunction("BandPart", dtype)) {}
  absl::Status Compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    ASSIGN_OR_RETURN(const BandWidths band, CheckedBandPart(c));
    ASSIGN_OR_RETURN(Tensor* const y, c.ForwardOrAllocate({0}, 0, x.shape()));
    return run_.LaunchForEach(x.num_elements(), GpuIn(x), GpuOut(*y), x.num_elements(), band.rows,
                              band.columns, band.lower, band.upper);
  }

 private:
  GpuFunction run_;
};

class GpuBands : public GpuKernel {
 public:
  GpuBands(const char* function, DType dtype, PlanOfBands plan, int padding_input)
      : run_(*this, kMatrixFile, MatrixFunction(function, dtype)),
        plan_(plan),
        padding_input_(padding_input) {}
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(align_, BandAlignment(setup.node()));
    return GpuKernel::Init(setup);
  }

 protected:
  absl::StatusOr<BandPlan> Plan(const KernelContext& c) const { return plan_(c, align_); }
  GpuPadding PaddingOf(const KernelContext& c) const {
    GpuPadding padding;
    if (padding_input_ < 0) return padding;
    const Tensor& value = c.input(padding_input_);
    std::memcpy(padding.bytes, value.raw(), DTypeSize(value.dtype()));
    return padding;
  }
  GpuFunction run_;

 private:
  const PlanOfBands plan_;
  const int padding_input_;
  std::string align_;
};

// From diagonals to matrices, or back.
class GpuMoveBands : public GpuBands {
 public:
  using GpuBands::GpuBands;
  absl::Status Compute(KernelContext& c) override {
    ASSIGN_OR_RETURN(const BandPlan plan, Plan(c));
    ASSIGN_OR_RETURN(Tensor* const y, c.AllocateOutput(0, plan.output));
    return run_.LaunchForEach(y->num_elements(), GpuIn(c.input(0)), GpuOut(*y), y->num_elements(),
                              BandOf(plan.geometry), PaddingOf(c));
  }
};

class GpuSetBands : public GpuBands {
 public:
  GpuSetBands(DType dtype, PlanOfBands plan) : GpuBands("SetDiagonals", dtype, plan, -1) {}
  absl::Status Compute(KernelContext& c) override {
    ASSIGN_OR_RETURN(const BandPlan plan, Plan(c));
    const Tensor& x = c.input(0);
    ASSIGN_OR_RETURN(Tensor* const y, c.ForwardOrAllocate({0}, 0, plan.output));
    return run_.LaunchForEach(y->num_elements(), GpuIn(x), GpuIn(c.input(1)), GpuOut(*y),
                              y->num_elements(), BandOf(plan.geometry));
  }
};

}  // namespace

KernelFactory MakeGpuBandPart(DType dtype) {
  return [=] { return std::make_unique<GpuBandPart>(dtype); };
}
KernelFactory MakeGpuMatrixDiag(DType dtype, PlanOfBands plan, int padding_input) {
  return [=] { return std::make_unique<GpuMoveBands>("MakeMatrices", dtype, plan, padding_input); };
}
KernelFactory MakeGpuMatrixDiagPart(DType dtype, PlanOfBands plan, int padding_input) {
  return
      [=] { return std::make_unique<GpuMoveBands>("TakeDiagonals", dtype, plan, padding_input); };
}
KernelFactory MakeGpuMatrixSetDiag(DType dtype, PlanOfBands plan) {
  return [=] { return std::make_unique<GpuSetBands>(dtype, plan); };
}

std::vector<DType> GpuMatrixTypes() {
  return {DType::kBool,   DType::kHalf,      DType::kBfloat16,  DType::kFloat,
          DType::kDouble, DType::kComplex64, DType::kComplex128};
}

}  // namespace muster
