// Gamma, zeta and Bessel functions and their gradients.
#include <limits>

#include "muster/ops/math/elementwise.h"
#include "muster/ops/math/elementwise_gpu.h"
#include "muster/ops/math/gradient_helpers.h"
#include "muster/ops/math/special_functions.h"

namespace muster {
namespace {

constexpr const char* kFloatTypes = "T: {bfloat16, half, float, double}";
constexpr const char* kGpuFile = "math/special.cu";
constexpr const char* kPreciseTypes = "T: {float, double}";

template <double (*function)(double)>
struct Function1 {
  static constexpr double kCost = 40;
  template <typename T>
  static T Apply(T x) {
    return static_cast<T>(function(static_cast<double>(x)));
  }
};
template <double (*function)(double, double)>
struct Function2 {
  static constexpr double kCost = 150;
  template <typename T>
  static T Apply(const T& x, const T& y) {
    return static_cast<T>(function(static_cast<double>(x), static_cast<double>(y)));
  }
};

Output NameOp(const Scope& s, const char* op, Output x, const char* name) {
  return s.Op(op, {x}, {}, name);
}

absl::Status LgammaGradient(GradientContext& c) {
  ASSIGN_OR_RETURN(const Output dy, DenseGradient(c));
  const Scope s = AfterGradient(c, dy);
  c.SetDx(0, Times(s, dy, s.Op("Digamma", {c.input(0)})));
  return c.scope().status();
}
absl::Status DigammaGradient(GradientContext& c) {
  ASSIGN_OR_RETURN(const Output dy, DenseGradient(c));
  const Scope s = AfterGradient(c, dy);
  const Output one = ConstOf(s, c.input(0).base_dtype(), 1);
  c.SetDx(0, Times(s, dy, s.Op("Polygamma", {one, c.input(0)})));
  return c.scope().status();
}
absl::Status ZetaGradient(GradientContext& c) {
  ASSIGN_OR_RETURN(const Output dy, DenseGradient(c));
  const Output x = c.input(0);
  const auto [rx, rq] = c.BroadcastArgs();
  const Scope s = AfterGradient(c, dy);
  const Output negative = s.Op("Neg", {x});
  const Output zeta = s.Op("Zeta", {Plus(s, x, 1.0), c.input(1)});
  const Output partial = Times(s, negative, zeta);
  c.SetDx(1, Reduce(s, Times(s, partial, dy), rq));
  return c.scope().status();
}
absl::Status PolygammaGradient(GradientContext& c) {
  ASSIGN_OR_RETURN(const Output dy, DenseGradient(c));
  const auto [rn, rx] = c.BroadcastArgs();
  const Scope s = AfterGradient(c, dy);
  const Output partial = s.Op("Polygamma", {Plus(s, c.input(0), 1.0), c.input(1)});
  c.SetDx(1, Reduce(s, Times(s, partial, dy), rx));
  return c.scope().status();
}
absl::Status IgammaGradient(GradientContext& c) {
  ASSIGN_OR_RETURN(const Output dy, DenseGradient(c));
  const Output a = c.input(0);
  const Output x = c.input(1);
  const auto [ra, rx] = c.BroadcastArgs();
  const Scope s = AfterGradient(c, dy);
  const Output partial_a = s.Op("IgammaGradA", {a, x});
  // In log space: Gamma(a) may be large.
  const Output negative = s.Op("Neg", {x});
  const Output less = Minus(s, a, 1.0);
  const Output powers = Plus(s, negative, Times(s, less, s.Op("Log", {x})));
  const Output partial_x = s.Op("Exp", {Minus(s, powers, s.Op("Lgamma", {a}))});
  c.SetDx(0, Reduce(s, Times(s, partial_a, dy), ra));
  c.SetDx(1, Reduce(s, Times(s, partial_x, dy), rx));
  return c.scope().status();
}
absl::Status IgammacGradient(GradientContext& c) {
  RETURN_IF_ERROR(IgammaGradient(c));
  for (int i = 0; i < 2; ++i) c.SetDx(i, c.Op("Neg", {std::get<Output>(c.input_gradients()[i])}));
  return c.scope().status();
}
absl::Status BesselI0eGradient(GradientContext& c) {
  ASSIGN_OR_RETURN(const Output dy, DenseGradient(c));
  const Scope s = AfterGradient(c, dy);
  const Output i1 = NameOp(s, "BesselI1e", c.input(0), "bessel_i1e");
  const Output signed_y = Times(s, s.Op("Sign", {c.input(0)}), c.output());
  c.SetDx(0, Times(s, dy, Minus(s, i1, signed_y)));
  return c.scope().status();
}
double EpsilonOf(DType dtype) {
  switch (dtype) {
    case DType::kHalf:
      return 0x1p-10;
    case DType::kBfloat16:
      return 0x1p-7;
    case DType::kFloat:
      return std::numeric_limits<float>::epsilon();
    default:
      return std::numeric_limits<double>::epsilon();
  }
}
absl::Status BesselI1eGradient(GradientContext& c) {
  ASSIGN_OR_RETURN(const Output dy, DenseGradient(c));
  const Output x = c.input(0);
  const Scope s = AfterGradient(c, dy);
  const double epsilon = EpsilonOf(x.base_dtype());
  const Output zeros = EmitZerosLike(s, x);
  const Output modulus = s.Op("Abs", {x});
  const NamedOp greater(s, "Greater");
  const Output bound = ConstOf(greater.inner(), x.base_dtype(), epsilon, "y");
  const Output not_tiny = greater.Op("Greater", {modulus, bound});
  const Output safe = s.Op("Select", {not_tiny, x, Plus(s, epsilon, zeros)});
  const Output i0 = NameOp(s, "BesselI0e", safe, "bessel_i0e");
  const Output sign = s.Op("Sign", {safe});
  const Output factor = Plus(s, sign, s.Op("Reciprocal", {safe}));
  const Output derivative = Minus(s, i0, Times(s, c.output(), factor));
  const Output result = s.Op("Select", {not_tiny, derivative, Plus(s, 0.5, zeros)});
  c.SetDx(0, Times(s, dy, result));
  return c.scope().status();
}

template <double (*function)(double)>
void Define1(OpBuilder& op, const char* on_gpu, const char* doc, GradientFunction gradient) {
  op.Attr(kFloatTypes)
      .Input("x: T")
      .Output("y: T")
      .Doc(doc)
      .Shape(UnchangedShape)
      .Gradient(std::move(gradient));
  op.CpuTypes<Floats>("T", Unary<Function1<function>>())
      .GpuTypes("T", kGpuFloats, UnaryOnGpu(on_gpu, kGpuFile));
}
template <double (*function)(double, double)>
OpBuilder& Define2(OpBuilder& op, const char* on_gpu, const char* types, const char* first,
                   const char* second, const char* doc) {
  op.Attr(types).Input(first).Input(second).Output("z: T").Doc(doc).Shape(BroadcastBinaryShape);
  return op.CpuTypes<Types<float, double>>("T", Binary<Function2<function>>())
      .GpuTypes("T", kGpuPreciseFloats, BinaryOnGpu(on_gpu, kGpuFile));
}

DEFINE_OP(Lgamma) {
  Define1<LogGamma>(op, "Function1<LogGamma>", "Logarithms of the modulus of the gamma function.",
                    LgammaGradient);
}
DEFINE_OP(Digamma) {
  Define1<Digamma>(op, "Function1<Digamma>", "The derivative of Lgamma.", DigammaGradient);
}
DEFINE_OP(BesselI0e) {
  Define1<ScaledBesselI0>(op, "Function1<ScaledBesselI0>",
                          "Modified Bessel function of order 0, times exp(-|x|).",
                          BesselI0eGradient);
}
DEFINE_OP(BesselI1e) {
  Define1<ScaledBesselI1>(op, "Function1<ScaledBesselI1>",
                          "Modified Bessel function of order 1, times exp(-|x|).",
                          BesselI1eGradient);
}
DEFINE_OP(Zeta) {
  Define2<Zeta>(op, "Function2<Zeta>", kPreciseTypes, "x: T", "q: T", "Hurwitz zeta function.")
      .Gradient(ZetaGradient);
}
DEFINE_OP(Polygamma) {
  Define2<Polygamma>(op, "Function2<Polygamma>", kPreciseTypes, "a: T", "x: T",
                     "The a-th derivative of Digamma.")
      .Gradient(PolygammaGradient);
}
DEFINE_OP(Igamma) {
  Define2<LowerGamma>(op, "Function2<LowerGamma>", kFloatTypes, "a: T", "x: T",
                      "Lower regularised incomplete gamma function.")
      .Gradient(IgammaGradient);
}
DEFINE_OP(Igammac) {
  Define2<UpperGamma>(op, "Function2<UpperGamma>", kFloatTypes, "a: T", "x: T",
                      "Upper regularised incomplete gamma function.")
      .Gradient(IgammacGradient);
}
DEFINE_OP(IgammaGradA) {
  Define2<LowerGammaDerivative>(op, "Function2<LowerGammaDerivative>", kPreciseTypes, "a: T",
                                "x: T", "The derivative of Igamma by a.");
}

}  // namespace
}  // namespace muster
