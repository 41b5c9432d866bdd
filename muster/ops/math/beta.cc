// Betainc: the regularised incomplete beta function. Its arguments have one shape, or are scalars.
#include "absl/strings/str_cat.h"

#include "muster/ops/math/elementwise_gpu.h"
#include "muster/ops/math/gradient_helpers.h"
#include "muster/ops/math/special_functions.h"
#include "muster/ops/op.h"

namespace muster {
namespace {

// The shape of the arguments that are no scalars.
absl::StatusOr<Shape> CommonShape(KernelContext& c) {
  Shape shape;
  constexpr const char* kNames[] = {"a", "b", "x"};
  int shaped = -1;
  for (int i = 0; i < 3; ++i) {
    const Shape& own = c.input(i).shape();
    if (own.is_scalar()) continue;
    if (shaped >= 0 && own != shape) {
      return InvalidArgument("Shapes of ", kNames[shaped], " and ", kNames[i],
                             " are inconsistent: ", shape.ToString(), " vs. ", own.ToString());
    }
    shape = own;
    shaped = i;
  }
  return shape;
}

template <typename T>
absl::Status Betainc(KernelContext& c) {
  ASSIGN_OR_RETURN(const Shape shape, CommonShape(c));
  ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, shape));
  const auto at = [&c](int i, int64_t k) {
    const Tensor& input = c.input(i);
    return static_cast<double>(input.data<T>()[input.rank() == 0 ? 0 : k]);
  };
  constexpr double kCost = 300;
  c.ParallelFor(shape.num_elements(), kCost, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k)
      output->data<T>()[k] = static_cast<T>(IncompleteBeta(at(0, k), at(1, k), at(2, k)));
  });
  return absl::OkStatus();
}

class GpuBetainc final : public GpuKernel {
 public:
  explicit GpuBetainc(DType dtype)
      : run_(*this, "math/special.cu",
             absl::StrCat("Ternary<Betainc, ", GpuTypeName(dtype), ", ", GpuTypeName(dtype), ">")) {
  }
  absl::Status Compute(KernelContext& c) override {
    RETURN_IF_ERROR(CommonShape(c).status());
    const std::array<const Shape*, 3> shapes = {&c.input(0).shape(), &c.input(1).shape(),
                                                &c.input(2).shape()};
    ASSIGN_OR_RETURN(const BroadcastPlan plan, BroadcastPlan::Make(shapes));
    ASSIGN_OR_RETURN(const GpuBroadcast<3> broadcast, MakeGpuBroadcast<3>(plan));
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, plan.output()));
    return run_.LaunchForEach(GpuPacks(broadcast.count, output->dtype()), GpuIn(c.input(0)),
                              GpuIn(c.input(1)), GpuIn(c.input(2)), GpuOut(*output), broadcast);
  }

 private:
  GpuFunction run_;
};

absl::Status BetaincShape(ShapeContext& c) {
  PartialShape shape = PartialShape::Scalar();
  bool any_unknown = false;
  for (int i = 0; i < 3; ++i) {
    if (!c.input(i).known_rank()) {
      any_unknown = true;
    } else if (c.input(i).rank() > 0) {
      if (shape.rank() == 0) {
        shape = c.input(i);
      } else {
        ASSIGN_OR_RETURN(shape, ShapeContext::Merge(shape, c.input(i)));
      }
    }
  }
  c.SetOutput(0, any_unknown && shape.rank() == 0 ? PartialShape() : shape);
  return absl::OkStatus();
}

// By x only, as in TensorFlow: x^(a-1) (1-x)^(b-1) / B(a, b), in log space.
absl::Status BetaincGradient(GradientContext& c) {
  ASSIGN_OR_RETURN(const Output dy, DenseGradient(c));
  const Output a = c.input(0), b = c.input(1), x = c.input(2);
  const Output a_shape = c.ShapeOf(a);
  const Output x_shape = c.ShapeOf(x);
  const Output axes = c.Op("BroadcastGradientArgs", {a_shape, x_shape});
  const Scope& s = c.scope();
  const Output log_beta =
      Minus(s, Plus(s, s.Op("Lgamma", {a}), s.Op("Lgamma", {b})), s.Op("Lgamma", {Plus(s, a, b)}));
  const Output rest = Minus(s, ConstOf(s, x.base_dtype(), 1), x);
  const Output left = Times(s, Minus(s, b, 1.0), s.Op("Log", {rest}));
  const Output right = Times(s, Minus(s, a, 1.0), s.Op("Log", {x}));
  const Output partial = s.Op("Exp", {Minus(s, Plus(s, left, right), log_beta)});
  const Output sum = s.Op("Sum", {Times(s, partial, dy), Output(axes.node, 1)});
  c.SetDx(2, s.Op("Reshape", {sum, x_shape}));
  return s.status();
}

DEFINE_OP(Betainc) {
  op.Attr("T: {float, double}")
      .Input("a: T")
      .Input("b: T")
      .Input("x: T")
      .Output("z: T")
      .Doc("Regularised incomplete beta function.")
      .Shape(BetaincShape)
      .Gradient(BetaincGradient);
  op.CpuTypes<Types<float, double>>("T", []<typename T>() {
      return Stateless(Betainc<T>);
    }).GpuTypes("T", kGpuPreciseFloats, KernelOnGpu<GpuBetainc>());
}

}  // namespace
}  // namespace muster
