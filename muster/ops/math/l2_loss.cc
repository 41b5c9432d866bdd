// L2Loss: half the sum of the squares of all elements.
#include "absl/strings/str_cat.h"

#include "muster/ops/math/elementwise_gpu.h"
#include "muster/ops/math/reduce.h"
#include "muster/ops/math/reduce_gpu.h"
#include "muster/ops/op.h"

namespace muster {
namespace {

template <typename Element>
struct HalfSquares {
  using T = Element;
  using R = Element;
  using A = Compute<Element>;
  static constexpr bool kDirect = false;
  static A Identity() { return A(0); }
  template <typename V>
  static V Combine(V a, V b) {
    return a + b;
  }
  static void Convert(const T* from, int64_t count, A* to) {
    if constexpr (std::is_same_v<T, A>) {
      for (int64_t i = 0; i < count; ++i) to[i] = from[i] * from[i] * A(0.5);
    } else {
      ConvertArray(from, count, to);
      for (int64_t i = 0; i < count; ++i) to[i] = to[i] * to[i] * A(0.5);
    }
  }
  static R Finish(A value, int64_t /*terms*/) { return static_cast<R>(value); }
};

// All elements into one.
ReductionPlan PlanOfAll(const Tensor& input) {
  ReductionPlan plan;
  plan.terms = input.num_elements();
  plan.first_is_reduced = true;
  plan.dims = {plan.terms};
  return plan;
}

template <typename T>
absl::Status Run(KernelContext& c) {
  const Tensor& input = c.input(0);
  const ReductionPlan plan = PlanOfAll(input);
  ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, plan.output));
  static constexpr Reducer kReducer = Reductions<HalfSquares<T>>::Make();
  return RunReduction(c, kReducer, plan, input.raw(), out->raw(), sizeof(T));
}

class GpuL2Loss final : public GpuKernel {
 public:
  explicit GpuL2Loss(DType dtype)
      : reducer_(*this, absl::StrCat("HalfSquares<", GpuTypeName(dtype), ">")) {}
  absl::Status Compute(KernelContext& c) override {
    const ReductionPlan plan = PlanOfAll(c.input(0));
    ASSIGN_OR_RETURN(Tensor* const out, c.AllocateOutput(0, plan.output));
    return reducer_.Run(c, plan, c.input(0), *out);
  }

 private:
  const GpuReducer reducer_;
};

absl::Status Differentiate(GradientContext& g) {
  g.SetDx(0, g.Op("Mul", {g.input(0), g.dy()}, {}, "mul"));
  return absl::OkStatus();
}

DEFINE_OP(L2Loss) {
  op.Attr("T: {half, bfloat16, float, double}")
      .Input("t: T")
      .Output("output: T")
      .Doc("Half the sum of the squares of all elements.")
      .Shape(ScalarShape)
      .Gradient(Differentiate)
      .CpuTypes<Floats>("T", []<typename T>() { return Stateless(Run<T>); })
      .GpuTypes("T", kGpuFloats, KernelOnGpu<GpuL2Loss>());
}

}  // namespace
}  // namespace muster
