// Complex numbers: making them and taking them apart.
#include <cmath>
#include <complex>

#include "muster/ops/control/variant_math.h"
#include "muster/ops/math/elementwise.h"
#include "muster/ops/math/elementwise_gpu.h"
#include "muster/ops/math/gradient_helpers.h"

namespace muster {
namespace {

struct RealPart {
  static constexpr double kCost = 0.4;
  template <typename R>
  static R Apply(std::complex<R> x) {
    return x.real();
  }
};
struct ImaginaryPart {
  static constexpr double kCost = 0.4;
  template <typename R>
  static R Apply(std::complex<R> x) {
    return x.imag();
  }
};
struct Argument {
  static constexpr double kCost = 20;
  template <typename R>
  static R Apply(std::complex<R> x) {
    return std::arg(x);
  }
};
struct Modulus {
  static constexpr double kCost = 5;
  template <typename R>
  static R Apply(std::complex<R> x) {
    return std::abs(x);
  }
};
struct Conjugation {
  static constexpr double kCost = 0.4;
  template <typename R>
  static std::complex<R> Apply(std::complex<R> x) {
    return std::conj(x);
  }
};
struct Combine {
  static constexpr double kCost = 0.5;
  template <typename R>
  static std::complex<R> Apply(const R& real, const R& imaginary) {
    return std::complex<R>(real, imaginary);
  }
};

DType RealOf(DType dtype) {
  return dtype == DType::kComplex128 ? DType::kDouble : DType::kFloat;
}
DType ComplexOf(DType dtype) {
  return dtype == DType::kDouble ? DType::kComplex128 : DType::kComplex64;
}

Output ComplexNode(const Scope& s, Output real, Output imaginary) {
  return s.Op("Complex", {real, imaginary}, {{"Tout", ComplexOf(real.base_dtype())}});
}
Output PartNode(const Scope& s, const char* op, Output x) {
  return s.Op(op, {x}, {{"Tout", RealOf(x.base_dtype())}});
}

absl::Status ComplexGradient(GradientContext& c) {
  ASSIGN_OR_RETURN(const Output dy, DenseGradient(c));
  const auto [rx, ry] = c.BroadcastArgs();
  c.SetDx(0, Reduce(c.scope(), PartNode(c.scope(), "Real", dy), rx));
  c.SetDx(1, Reduce(c.scope(), PartNode(c.scope(), "Imag", dy), ry));
  return c.scope().status();
}
absl::Status RealGradient(GradientContext& c) {
  ASSIGN_OR_RETURN(const Output dy, DenseGradient(c));
  const Output zero = ConstOf(c.scope(), dy.base_dtype(), 0);
  c.SetDx(0, ComplexNode(c.scope(), dy, zero));
  return c.scope().status();
}
absl::Status ImagGradient(GradientContext& c) {
  ASSIGN_OR_RETURN(const Output dy, DenseGradient(c));
  const Output zero = ConstOf(c.scope(), dy.base_dtype(), 0);
  c.SetDx(0, ComplexNode(c.scope(), zero, dy));
  return c.scope().status();
}
absl::Status AngleGradient(GradientContext& c) {
  ASSIGN_OR_RETURN(const Output dy, DenseGradient(c));
  const Scope s = AfterGradient(c, dy);
  const Output real = PartNode(s, "Real", c.input(0));
  const Output imaginary = PartNode(s, "Imag", c.input(0));
  const Output z = s.Op("Reciprocal", {ComplexNode(s, imaginary, real)});
  const Output zero = ConstOf(s, dy.base_dtype(), 0);
  const Output negative = s.Op("Neg", {ComplexNode(s, dy, zero)});
  c.SetDx(0, Times(s, negative, z));
  return c.scope().status();
}
absl::Status ConjGradient(GradientContext& c) {
  c.SetDx(0, Conjugate(c.scope(), c.dy()));
  return c.scope().status();
}
absl::Status ComplexAbsGradient(GradientContext& c) {
  ASSIGN_OR_RETURN(const Output dy, DenseGradient(c));
  const Scope& s = c.scope();
  const Output gradient = ComplexNode(s, dy, EmitZerosLike(s, dy));
  const Output scaled = Times(s, gradient, c.input(0));
  const Output modulus = ComplexNode(s, c.output(), EmitZerosLike(s, c.output()));
  c.SetDx(0, s.Op("DivNoNan", {scaled, modulus}, {}, "div_no_nan"));
  return s.status();
}

template <typename F>
void DefinePart(OpBuilder& op, const char* function, const char* input, const char* output,
                const char* doc, GradientFunction gradient) {
  op.Attr("T: {complex64, complex128} = DT_COMPLEX64").Attr("Tout: {float, double} = DT_FLOAT");
  op.Input(input).Output(output).Doc(doc).Shape(UnchangedShape).Gradient(std::move(gradient));
  op.CpuTypes<Types<Complex64>>("T", Unary<F>(), {{"Tout", DType::kFloat}});
  op.CpuTypes<Types<Complex128>>("T", Unary<F>(), {{"Tout", DType::kDouble}});
  for (const DType dtype : kGpuComplexes)
    op.GpuTypes("T", {dtype}, UnaryOnGpu(function), {}, {{"Tout", RealOf(dtype)}});
}

DEFINE_OP(Real) {
  DefinePart<RealPart>(op, "RealPart", "input: T", "output: Tout", "Real parts.", RealGradient);
}
DEFINE_OP(Imag) {
  DefinePart<ImaginaryPart>(op, "ImaginaryPart", "input: T", "output: Tout", "Imaginary parts.",
                            ImagGradient);
}
DEFINE_OP(Angle) {
  DefinePart<Argument>(op, "Argument", "input: T", "output: Tout", "Angles to the real axis.",
                       AngleGradient);
}
DEFINE_OP(ComplexAbs) {
  DefinePart<Modulus>(op, "Modulus", "x: T", "y: Tout", "Moduli.", ComplexAbsGradient);
}
DEFINE_OP(Conj) {
  op.Attr("T: {complex64, complex128, variant} = DT_COMPLEX64")
      .Input("input: T")
      .Output("output: T");
  op.Doc("Complex conjugates.").Shape(UnchangedShape).Gradient(ConjGradient);
  op.CpuTypes<Complexes>("T", Unary<Conjugation>())
      .GpuTypes("T", kGpuComplexes, UnaryOnGpu("Conjugation"))
      .Cpu(ConjVariants, {{"T", DType::kVariant}})
      .Gpu(ConjVariants, {{"T", DType::kVariant}});
}
DEFINE_OP(Complex) {
  op.Attr("T: {float, double} = DT_FLOAT").Attr("Tout: {complex64, complex128} = DT_COMPLEX64");
  op.Input("real: T")
      .Input("imag: T")
      .Output("out: Tout")
      .Doc("Complex numbers from their two parts.");
  op.Shape(BroadcastBinaryShape).Gradient(ComplexGradient);
  op.CpuTypes<Types<float>>("T", Binary<Combine>(), {{"Tout", DType::kComplex64}});
  op.CpuTypes<Types<double>>("T", Binary<Combine>(), {{"Tout", DType::kComplex128}});
  for (const DType dtype : kGpuPreciseFloats)
    op.GpuTypes("T", {dtype}, BinaryOnGpu("Combine"), {}, {{"Tout", ComplexOf(dtype)}});
}

}  // namespace
}  // namespace muster
