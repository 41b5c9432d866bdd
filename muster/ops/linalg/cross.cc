// Cross, and Timestamp.
#include "absl/time/clock.h"

#include "muster/graph/gradients/gradient_context.h"
#include "muster/ops/nn/packs.h"

namespace muster {
namespace {

absl::Status CheckCross(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape()) {
    return InvalidArgument("Both inputs must be of same shape: ", a.shape().ToString(), " vs. ",
                           b.shape().ToString());
  }
  if (a.rank() < 1) return InvalidArgument("Input must be at least 1D", a.shape().ToString());
  if (a.dim(a.rank() - 1) != 3) {
    return FailedPrecondition("Cross-products are only defined for 3-element vectors.");
  }
  return absl::OkStatus();
}

template <typename T>
absl::Status RunCross(KernelContext& c) {
  using Wide = Compute<T>;
  const Tensor& a = c.input(0);
  const Tensor& b = c.input(1);
  RETURN_IF_ERROR(CheckCross(a, b));
  ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, a.shape()));
  for (int64_t i = 0; i < a.num_elements(); i += 3) {
    const T* const x = a.data<T>() + i;
    const T* const y = b.data<T>() + i;
    for (int k = 0; k < 3; ++k) {
      const int n = (k + 1) % 3, m = (k + 2) % 3;
      output->data<T>()[i + k] = static_cast<T>(static_cast<Wide>(x[n]) * static_cast<Wide>(y[m]) -
                                                static_cast<Wide>(x[m]) * static_cast<Wide>(y[n]));
    }
  }
  return absl::OkStatus();
}

class GpuCross : public GpuKernel {
 public:
  explicit GpuCross(DType dtype)
      : run_(*this, "linalg/cross.cu", absl::StrCat("Cross<", GpuTypeName(dtype), ">")) {}
  absl::Status Compute(KernelContext& c) override {
    const Tensor& a = c.input(0);
    const Tensor& b = c.input(1);
    RETURN_IF_ERROR(CheckCross(a, b));
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, a.shape()));
    const int64_t vectors = a.num_elements() / 3;
    return run_.LaunchForEach(vectors, GpuIn(a), GpuIn(b), GpuOut(*output), vectors);
  }

 private:
  GpuFunction run_;
};

absl::Status CrossGradient(GradientContext& c) {
  c.SetDx(0, c.Op("Cross", {c.input(1), c.dy()}));
  c.SetDx(1, c.Op("Cross", {c.dy(), c.input(0)}));
  return absl::OkStatus();
}

}  // namespace

DEFINE_OP(Cross) {
  op.Attr(
        "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, "
        "uint64}")
      .Input("a: T")
      .Input("b: T")
      .Output("product: T")
      .Doc("Cross products of vectors of three elements.")
      .Shape([](ShapeContext& c) {
        c.SetOutput(0, c.input(0));
        return absl::OkStatus();
      })
      .Gradient(CrossGradient)
      .CpuTypes<Floats>("T", []<typename T>() { return Stateless(RunCross<T>); })
      .GpuTypes("T",
                {DType::kHalf, DType::kBfloat16, DType::kFloat, DType::kDouble, DType::kInt8,
                 DType::kUint8, DType::kInt16, DType::kUint16, DType::kInt32, DType::kInt64},
                MakeGpu<GpuCross>);
}

DEFINE_OP(Timestamp) {
  op.Output("ts: double")
      .Stateful()
      .Doc("Seconds since the beginning of 1970.")
      .Shape([](ShapeContext& c) {
        c.SetOutput(0, PartialShape::Scalar());
        return absl::OkStatus();
      })
      .NoGradient("it depends on nothing")
      .Cpu([](KernelContext& c) -> absl::Status {
        c.SetOutput(0,
                    Tensor::Scalar<double>(static_cast<double>(absl::GetCurrentTimeNanos()) / 1e9));
        return absl::OkStatus();
      });
}

}  // namespace muster
