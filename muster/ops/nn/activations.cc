// The smooth activations: Elu, Selu, Softplus and Softsign with their gradients.
#include <limits>

#include "muster/graph/build/emit.h"
#include "muster/ops/nn/elementwise.h"
#include "muster/ops/nn/exponential.h"
#include "muster/ops/nn/gpu_activation.h"
#include "muster/ops/nn/gradient_support.h"

namespace muster {
namespace {

constexpr double kCheap = 0.5;
constexpr double kCostly = 8;
constexpr double kSeluScale = 1.0507009873554804934193349852946;
constexpr double kSeluScaleAlpha = 1.7580993408473768599402175208123;

// e^x - 1 as TensorFlow has it: not more exact near zero, and with e^x rounded to T.
template <typename T>
Compute<T> ExponentialMinusOne(Compute<T> x) {
  using V = Compute<T>;
  return static_cast<V>(static_cast<T>(Exponential(x))) - V(1);
}

template <typename T>
absl::Status Elu(KernelContext& c) {
  using V = Compute<T>;
  return MapElements<T>(c, 2, [](V x) { return x < V(0) ? ExponentialMinusOne<T>(x) : x; });
}
template <typename T>
absl::Status EluGrad(KernelContext& c) {
  using V = Compute<T>;
  return MapPairs<T>(c, kCheap, [](V dy, V y) { return y < V(0) ? (y + V(1)) * dy : dy; });
}
template <typename T>
absl::Status Selu(KernelContext& c) {
  using V = Compute<T>;
  return MapElements<T>(c, 2, [](V x) {
    return x < V(0) ? V(kSeluScaleAlpha) * ExponentialMinusOne<T>(x) : V(kSeluScale) * x;
  });
}
template <typename T>
absl::Status SeluGrad(KernelContext& c) {
  using V = Compute<T>;
  return MapPairs<T>(c, kCheap, [](V dy, V y) {
    return y < V(0) ? dy * (y + V(kSeluScaleAlpha)) : dy * V(kSeluScale);
  });
}

// TensorFlow computes softplus of half and bfloat16 in the type itself, so that every step is
// rounded to it, and takes 2^-13 for the precision of half where softplus turns linear or
// exponential.
template <typename T>
constexpr double kEpsilonOf = std::numeric_limits<T>::epsilon();
template <>
constexpr double kEpsilonOf<Half> = 0x1p-13;
template <>
constexpr double kEpsilonOf<Bfloat16> = 0x1p-7;
template <typename T>
Compute<T> Rounded(Compute<T> x) {
  return static_cast<Compute<T>>(static_cast<T>(x));
}

template <typename T>
absl::Status Softplus(KernelContext& c) {
  using V = Compute<T>;
  const V logarithm = Rounded<T>(static_cast<V>(std::log(kEpsilonOf<T>)));
  const V threshold = Rounded<T>(logarithm + V(2));
  return MapElements<T>(c, 2 * kCostly, [threshold](V x) {
    if (x > -threshold) return x;
    const V e = Rounded<T>(Exponential(x));
    return x < threshold ? e : std::log1p(e);
  });
}
template <typename T>
absl::Status SoftplusGrad(KernelContext& c) {
  using V = Compute<T>;
  return MapPairs<T>(c, 2,
                     [](V dy, V x) { return dy / Rounded<T>(Rounded<T>(Exponential(-x)) + V(1)); });
}
template <typename T>
absl::Status Softsign(KernelContext& c) {
  using V = Compute<T>;
  return MapElements<T>(c, kCheap, [](V x) { return x / (std::abs(x) + V(1)); });
}
template <typename T>
absl::Status SoftsignGrad(KernelContext& c) {
  using V = Compute<T>;
  return MapPairs<T>(c, kCheap, [](V dy, V x) {
    const V d = std::abs(x) + V(1);
    return dy / (d * d);
  });
}

GradientFunction ByOutput(const char* op) {
  return [op](GradientContext& c) {
    c.SetDx(0, c.Op(op, {c.dy(), c.output()}));
    return absl::OkStatus();
  };
}

// Of EluGrad and SeluGrad: dy's part is the same op again, y's part lives where y is negative.
GradientFunction SecondOrder(const char* op) {
  return [op](GradientContext& c) {
    const Output y = c.input(1);
    c.SetDx(0, c.Op(op, {c.dy(), y}));
    const Scope less = c.scope().NameScope("Less");
    const Output zero = EmitScalar(less, y.base_dtype(), 0, "y");
    const Output negative = OpNamed(less, "Less", {y, zero});
    const Output product = c.Op("Mul", {c.dy(), c.input(0)}, {}, "mul");
    const Output zeros = ZerosLike(c, y);
    c.SetDx(1, c.Op("Select", {negative, product, zeros}));
    return absl::OkStatus();
  };
}

absl::Status DifferentiateSoftplus(GradientContext& c) {
  const Output slope = c.Op("Sigmoid", {c.input(0)});
  c.SetDx(0, c.Op("Mul", {c.dy(), slope}, {}, "mul"));
  return absl::OkStatus();
}

absl::Status DifferentiateSoftplusGrad(GradientContext& c) {
  const Output ddx = c.dy();
  if (!ddx) return c.scope().status();
  const Output dy = c.input(0);
  const Output x = c.input(1);
  Node* const after[] = {ddx.node};
  const Scope scope = c.scope().WithControlDependencies(after);
  c.SetDx(0, scope.Op("SoftplusGrad", {ddx, x}));
  const Output product = scope.Op("Mul", {ddx, dy}, {}, "mul");
  const Output down = scope.Op("Exp", {scope.Op("Neg", {x})});
  const Scope add = scope.NameScope("add");
  const Output two = EmitScalar(add, x.base_dtype(), 2, "y");
  const Output sum = OpNamed(add, "AddV2", {down, two});
  const Output up = scope.Op("Exp", {x});
  const Output all = scope.Op("AddV2", {sum, up}, {}, "add");
  c.SetDx(1, scope.Op("RealDiv", {product, all}, {}, "truediv"));
  return absl::OkStatus();
}

}  // namespace

DEFINE_OP(Elu) {
  op.Attr("T: {half, bfloat16, float, double}")
      .Input("features: T")
      .Output("activations: T")
      .Doc("e^x - 1 where x is negative, else x.")
      .Shape(UnchangedShape)
      .Gradient(ByOutput("EluGrad"))
      .CpuTypes<Floats>("T", []<typename T>() { return Stateless(Elu<T>); })
      .GpuTypes("T", GpuFloats(), MakeGpuActivation("Elu"));
}

DEFINE_OP(EluGrad) {
  op.Attr("T: {half, bfloat16, float, double}")
      .Input("gradients: T")
      .Input("outputs: T")
      .Output("backprops: T")
      .Doc("Gradient of Elu from its output.")
      .Shape(MergedShape)
      .Gradient(SecondOrder("EluGrad"))
      .CpuTypes<Floats>("T", []<typename T>() { return Stateless(EluGrad<T>); })
      .GpuTypes("T", GpuFloats(), MakeGpuActivationGrad("EluGrad"));
}

DEFINE_OP(Selu) {
  op.Attr("T: {half, bfloat16, float, double}")
      .Input("features: T")
      .Output("activations: T")
      .Doc("Elu scaled so that means and variances settle at 0 and 1.")
      .Shape(UnchangedShape)
      .Gradient(ByOutput("SeluGrad"))
      .CpuTypes<Floats>("T", []<typename T>() { return Stateless(Selu<T>); })
      .GpuTypes("T", GpuFloats(), MakeGpuActivation("Selu"));
}

DEFINE_OP(SeluGrad) {
  op.Attr("T: {half, bfloat16, float, double}")
      .Input("gradients: T")
      .Input("outputs: T")
      .Output("backprops: T")
      .Doc("Gradient of Selu from its output.")
      .Shape(MergedShape)
      .Gradient(SecondOrder("SeluGrad"))
      .CpuTypes<Floats>("T", []<typename T>() { return Stateless(SeluGrad<T>); })
      .GpuTypes("T", GpuFloats(), MakeGpuActivationGrad("SeluGrad"));
}

DEFINE_OP(Softplus) {
  op.Attr("T: {half, bfloat16, float, double}")
      .Input("features: T")
      .Output("activations: T")
      .Doc("log(1 + e^x), without overflow.")
      .Shape(UnchangedShape)
      .Gradient(DifferentiateSoftplus)
      .CpuTypes<Floats>("T", []<typename T>() { return Stateless(Softplus<T>); })
      .GpuTypes("T", GpuFloats(), MakeGpuActivation("Softplus"));
}

DEFINE_OP(SoftplusGrad) {
  op.Attr("T: {half, bfloat16, float, double}")
      .Input("gradients: T")
      .Input("features: T")
      .Output("backprops: T")
      .Doc("Gradient of Softplus from its input.")
      .Shape(MergedShape)
      .Gradient(DifferentiateSoftplusGrad)
      .CpuTypes<Floats>("T", []<typename T>() { return Stateless(SoftplusGrad<T>); })
      .GpuTypes("T", GpuFloats(), MakeGpuActivationGrad("SoftplusGrad"));
}

DEFINE_OP(Softsign) {
  op.Attr("T: {half, bfloat16, float, double}")
      .Input("features: T")
      .Output("activations: T")
      .Doc("x / (1 + |x|).")
      .Shape(UnchangedShape)
      .Gradient([](GradientContext& c) {
        c.SetDx(0, c.Op("SoftsignGrad", {c.dy(), c.input(0)}));
        return absl::OkStatus();
      })
      .CpuTypes<Floats>("T", []<typename T>() { return Stateless(Softsign<T>); })
      .GpuTypes("T", GpuFloats(), MakeGpuActivation("Softsign"));
}

DEFINE_OP(SoftsignGrad) {
  op.Attr("T: {half, bfloat16, float, double}")
      .Input("gradients: T")
      .Input("features: T")
      .Output("backprops: T")
      .Doc("Gradient of Softsign from its input.")
      .Shape(MergedShape)
      .CpuTypes<Floats>("T", []<typename T>() { return Stateless(SoftsignGrad<T>); })
      .GpuTypes("T", GpuFloats(), MakeGpuActivationGrad("SoftsignGrad"));
}

}  // namespace muster
