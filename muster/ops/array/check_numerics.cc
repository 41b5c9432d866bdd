// A check that everything is a number.
#include <atomic>
#include <cmath>

#include "absl/strings/str_cat.h"

#include "muster/ops/array/gradients.h"
#include "muster/ops/gpu_kernel.h"
#include "muster/ops/op.h"

namespace muster {
namespace {

absl::Status Verdict(absl::string_view message, bool has_inf, bool has_nan) {
  if (!has_inf && !has_nan) return absl::OkStatus();
  return InvalidArgument(message, " : Tensor had ",
                         has_inf && has_nan ? "Inf and NaN" : (has_inf ? "Inf" : "NaN"), " values");
}

template <typename T>
class CheckNumericsKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(message_, setup.Attr<std::string>("message"));
    return absl::OkStatus();
  }
  absl::Status Compute(KernelContext& c) override {
    const T* const values = c.input(0).data<T>();
    std::atomic<bool> has_inf = false, has_nan = false;
    c.ParallelFor(c.input(0).num_elements(), 0.5, [&](int64_t begin, int64_t end) {
      bool inf = false, nan = false;
      for (int64_t i = begin; i < end; ++i) {
        const auto value = static_cast<muster::Compute<T>>(values[i]);
        inf |= std::isinf(value);
        nan |= std::isnan(value);
      }
      if (inf) has_inf = true;
      if (nan) has_nan = true;
    });
    RETURN_IF_ERROR(Verdict(message_, has_inf, has_nan));
    c.SetOutput(0, c.TakeInput(0));
    return absl::OkStatus();
  }

 private:
  std::string message_;
};

class GpuCheckNumerics : public GpuKernel {
 public:
  explicit GpuCheckNumerics(DType dtype)
      : find_(*this, "array/check_numerics.cu",
              absl::StrCat("FindUnusual<", GpuTypeName(dtype), ">")) {}
  absl::Status Init(KernelSetup& setup) override {
    RETURN_IF_ERROR(GpuKernel::Init(setup));
    ASSIGN_OR_RETURN(message_, setup.Attr<std::string>("message"));
    return absl::OkStatus();
  }
  bool is_async() const override { return true; }
  absl::Status Compute(KernelContext&) override {
    return Internal("CheckNumerics runs asynchronously");
  }
  void ComputeAsync(KernelContext& c, Done done) override {
    const absl::StatusOr<Tensor> found = Find(c);
    if (!found.ok()) return std::move(done)(found.status());
    c.device().CopyToHost(
        *found, [this, &c, done = std::move(done)](absl::StatusOr<Tensor> flags) mutable {
          if (!flags.ok()) return std::move(done)(flags.status());
          const absl::Span<const int32_t> has = flags->values<int32_t>();
          const absl::Status verdict = Verdict(message_, has[0] != 0, has[1] != 0);
          if (verdict.ok()) c.SetOutput(0, c.TakeInput(0));
          std::move(done)(verdict);
        });
  }

 private:
  // Whether there are infinities, and values that are not numbers.
  absl::StatusOr<Tensor> Find(KernelContext& c) const {
    const Tensor& values = c.input(0);
    ASSIGN_OR_RETURN(Tensor found, c.AllocateTemporary(DType::kInt32, Shape({2})));
    RETURN_IF_ERROR(gpu().Fill(found.raw(), 0, found.size_bytes()));
    const int64_t count = values.num_elements();
    RETURN_IF_ERROR(find_.LaunchForEach(count, GpuIn(values), count, GpuOut(found)));
    return found;
  }

  std::string message_;
  const GpuFunction find_;
};

absl::Status CheckNumericsGradient(GradientContext& c) {
  const std::string message =
      absl::StrCat("Not a number (NaN) or infinity (Inf) values detected in gradient. ",
                   PythonBytes(c.Attr<std::string>("message")));
  c.SetDx(0, c.Op("CheckNumerics", {c.dy()}, {{"message", message}}));
  return absl::OkStatus();
}

DEFINE_OP(CheckNumerics) {
  op.Attr("T: {bfloat16, half, float, double}")
      .Attr("message: string")
      .Input("tensor: T")
      .Output("output: T")
      .Stateful()
      .Doc("Its input, after a check that no element is infinite or not a number.")
      .Shape(UnchangedShape)
      .Gradient(CheckNumericsGradient)
      .CpuTypes<Floats>("T", []<typename T>() { return New<CheckNumericsKernel<T>>(); })
      .GpuTypes(
          "T", {DType::kHalf, DType::kBfloat16, DType::kFloat, DType::kDouble},
          [](DType dtype) { return [=] { return std::make_unique<GpuCheckNumerics>(dtype); }; });
}

}  // namespace
}  // namespace muster
