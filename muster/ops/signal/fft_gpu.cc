// Fourier transforms on GPUs, by cuFFT. What of a block takes no part in its transform is cut off
// first, and what cuFFT leaves to its caller, the factor of inverse transforms, is applied behind.
#include "absl/strings/str_cat.h"

#include "muster/ops/indexing/gpu_mover.h"
#include "muster/ops/signal/fft.h"

namespace muster {
namespace {

// cuFFT reads whole complex numbers.
constexpr uintptr_t kAlignment = 16;

class GpuFourier : public GpuKernel {
 public:
  GpuFourier(const FourierOp& op, DType complex)
      : op_(op),
        in_double_(complex == DType::kComplex128),
        mover_(*this, op.kind != FourierKind::kFromReal ? complex
                      : in_double_                      ? DType::kDouble
                                                        : DType::kFloat),
        scale_(*this, "signal/fft.cu",
               absl::StrCat("ScaleNumbers<", in_double_ ? "double" : "float", ">")) {}
  absl::Status Init(KernelSetup& setup) override {
    RETURN_IF_ERROR(GpuKernel::Init(setup));
    return Prefixed(PrepareCufft(), absl::StrCat(setup.node().op(), " on a GPU: "));
  }
  absl::Status Compute(KernelContext& c) override {
    const Tensor& input = c.input(0);
    ASSIGN_OR_RETURN(const FourierSizes sizes, MeasureFourier(c, op_));
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, sizes.output));
    RETURN_IF_ERROR(CheckFourierTypes(op_, input.dtype(), output->dtype()));
    if (sizes.output.num_elements() == 0) return absl::OkStatus();
    if (input.num_elements() == 0) return gpu().Fill(output->raw(), 0, output->size_bytes());
    CufftTransform transform;
    transform.kind = op_.kind;
    transform.in_double = in_double_ ? 1 : 0;
    transform.inverse = op_.is_forward ? 0 : 1;
    transform.rank = op_.rank;
    std::copy(sizes.lengths.begin(), sizes.lengths.end(), transform.lengths);
    transform.batch = sizes.batch;
    ASSIGN_OR_RETURN(std::shared_ptr<const CufftPlan> plan, FindCufftPlan(gpu(), transform));
    ASSIGN_OR_RETURN(Tensor taken, Take(c, sizes));
    const int64_t workspace_bytes = WorkspaceBytes(*plan);
    Tensor workspace;
    if (workspace_bytes > 0) {
      ASSIGN_OR_RETURN(workspace, c.AllocateTemporary(DType::kUint8, Shape({workspace_bytes})));
    }
    RETURN_IF_ERROR(RunCufft(gpu(), std::move(plan), taken.raw(), output->raw(),
                             workspace.valid() ? workspace.raw() : nullptr));
    return op_.is_forward ? absl::OkStatus() : Scale(sizes, *output);
  }

 private:
  // What the transform takes of the input: itself where that is all of it. Transforms to real
  // numbers overwrite what they take.
  absl::StatusOr<Tensor> Take(KernelContext& c, const FourierSizes& sizes) const {
    const Tensor& input = c.input(0);
    const Dims dims = sizes.TakenDims(op_.kind);
    const bool is_aligned = reinterpret_cast<uintptr_t>(input.raw()) % kAlignment == 0;
    if (dims == sizes.in_dims && is_aligned && op_.kind != FourierKind::kToReal) return input;
    Dims all = {sizes.batch};
    all.insert(all.end(), dims.begin(), dims.end());
    ASSIGN_OR_RETURN(const Shape shape, Shape::Make(all));
    ASSIGN_OR_RETURN(Tensor taken, c.AllocateTemporary(input.dtype(), shape));
    Dims from = {sizes.batch};
    from.insert(from.end(), sizes.in_dims.begin(), sizes.in_dims.end());
    const Dims from_strides = RowMajorStrides(from), to_strides = RowMajorStrides(all);
    StridedBox box;
    for (size_t i = 0; i < all.size(); ++i) box.Add(all[i], from_strides[i], to_strides[i]);
    RETURN_IF_ERROR(mover_.Copy(c, std::move(box), input, taken));
    return taken;
  }
  absl::Status Scale(const FourierSizes& sizes, Tensor& output) const {
    const double factor = 1.0 / static_cast<double>(sizes.points());
    const int64_t count = output.num_elements() * (op_.kind == FourierKind::kToReal ? 1 : 2);
    if (in_double_) return scale_.LaunchForEach(count, GpuOut(output), factor, count);
    return scale_.LaunchForEach(count, GpuOut(output), static_cast<float>(factor), count);
  }

  const FourierOp op_;
  const bool in_double_;
  const GpuMover mover_;
  const GpuFunction scale_;
};

}  // namespace

void AddGpuFourier(OpBuilder& op, const FourierOp& fourier) {
  op.GpuTypes("Tcomplex", {DType::kComplex64, DType::kComplex128},
              [fourier](DType dtype) -> KernelFactory {
                return [=] { return std::make_unique<GpuFourier>(fourier, dtype); };
              });
}

}  // namespace muster
