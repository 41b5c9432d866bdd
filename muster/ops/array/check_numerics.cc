// A check that everything is a number.
#include <atomic>
#include <cmath>

#include "muster/ops/array/gradients.h"
#include "muster/ops/op.h"

namespace muster {
namespace {

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
    if (has_inf || has_nan) {
      return InvalidArgument(message_, " : Tensor had ",
                             has_inf && has_nan ? "Inf and NaN" : (has_inf ? "Inf" : "NaN"),
                             " values");
    }
    c.SetOutput(0, c.TakeInput(0));
    return absl::OkStatus();
  }

 private:
  std::string message_;
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
      .CpuTypes<Floats>("T", []<typename T>() { return New<CheckNumericsKernel<T>>(); });
}

}  // namespace
}  // namespace muster
