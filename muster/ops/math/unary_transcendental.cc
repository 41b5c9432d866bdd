// Exponentials, logarithms, trigonometric and hyperbolic functions and their gradients.
#include <cmath>
#include <complex>
#include <numbers>

#include "muster/ops/math/elementwise.h"
#include "muster/ops/math/elementwise_gpu.h"
#include "muster/ops/math/float_math.h"
#include "muster/ops/math/gradient_helpers.h"

namespace muster {
namespace {

constexpr const char* kFloatTypes = "T: {bfloat16, half, float, double}";
constexpr const char* kFieldTypes = "T: {bfloat16, half, float, double, complex64, complex128}";
using Fields = Join<Floats, Complexes>;

template <typename T>
constexpr bool kIsComplex = false;
template <typename T>
constexpr bool kIsComplex<std::complex<T>> = true;

struct Exp {
  static constexpr double kCost = 1;
  template <typename T>
  static T Apply(T x) {
    if constexpr (std::is_same_v<T, float>)
      return FastExp(x);
    else
      return std::exp(x);
  }
};
struct Expm1 {
  static constexpr double kCost = 8;
  template <typename T>
  static T Apply(T x) {
    if constexpr (kIsComplex<T>) {
      using R = typename T::value_type;
      const R half_sine = std::sin(x.imag() / 2);
      return T(std::expm1(x.real()) * std::cos(x.imag()) - 2 * half_sine * half_sine,
               std::exp(x.real()) * std::sin(x.imag()));
    } else {
      return std::expm1(x);
    }
  }
};
struct Log {
  static constexpr double kCost = 1;
  template <typename T>
  static T Apply(T x) {
    if constexpr (std::is_same_v<T, float>)
      return FastLog(x);
    else
      return std::log(x);
  }
};
struct Log1p {
  static constexpr double kCost = 8;
  template <typename T>
  static T Apply(T x) {
    if constexpr (kIsComplex<T>) {
      using R = typename T::value_type;
      return T(std::log1p(x.real() * (2 + x.real()) + x.imag() * x.imag()) / 2,
               std::atan2(x.imag(), R(1) + x.real()));
    } else {
      return std::log1p(x);
    }
  }
};
struct Tanh {
  static constexpr double kCost = 1.5;
  template <typename T>
  static T Apply(T x) {
    if constexpr (std::is_same_v<T, float>)
      return FastTanh(x);
    else
      return std::tanh(x);
  }
};
struct Sigmoid {
  static constexpr double kCost = 1.5;
  template <typename T>
  static T Apply(T x) {
    if constexpr (std::is_same_v<T, float>) {
      return FastSigmoid(x);
    } else if constexpr (kIsComplex<T>) {
      return T(1) / (T(1) + std::exp(-x));
    } else {
      const T e = std::exp(-std::fabs(x));
      return (x >= T(0) ? T(1) : e) / (T(1) + e);
    }
  }
};

#define MUSTER_LIBRARY_FUNCTION(Name, function) \
  struct Name {                                 \
    static constexpr double kCost = 10;         \
    template <typename T>                       \
    static T Apply(T x) {                       \
      return std::function(x);                  \
    }                                           \
  };
MUSTER_LIBRARY_FUNCTION(Sin, sin)
MUSTER_LIBRARY_FUNCTION(Cos, cos)
MUSTER_LIBRARY_FUNCTION(Tan, tan)
MUSTER_LIBRARY_FUNCTION(Asin, asin)
MUSTER_LIBRARY_FUNCTION(Acos, acos)
MUSTER_LIBRARY_FUNCTION(Atan, atan)
MUSTER_LIBRARY_FUNCTION(Sinh, sinh)
MUSTER_LIBRARY_FUNCTION(Cosh, cosh)
MUSTER_LIBRARY_FUNCTION(Asinh, asinh)
MUSTER_LIBRARY_FUNCTION(Acosh, acosh)
MUSTER_LIBRARY_FUNCTION(Atanh, atanh)
MUSTER_LIBRARY_FUNCTION(Erf, erf)
MUSTER_LIBRARY_FUNCTION(Erfc, erfc)
#undef MUSTER_LIBRARY_FUNCTION

// Gradient functions conjugate y before they call these.
struct TanhGrad {
  static constexpr double kCost = 0.4;
  template <typename T>
  static T Apply(const T& y, const T& dy) {
    return dy * (T(1) - y * y);
  }
};
struct SigmoidGrad {
  static constexpr double kCost = 0.4;
  template <typename T>
  static T Apply(const T& y, const T& dy) {
    return dy * y * (T(1) - y);
  }
};

// --- Gradients

// dy * f'(x), where `derivative` builds f' in a scope that waits for dy; x arrives conjugated.
absl::Status ByDerivative(GradientContext& c, Output (*derivative)(const Scope&, Output)) {
  ASSIGN_OR_RETURN(const Output dy, DenseGradient(c));
  const Scope s = AfterGradient(c, dy);
  const Output x = Conjugate(s, c.input(0));
  RETURN_IF_ERROR(s.status());
  const Output partial = derivative(s, x);
  c.SetDx(0, Times(s, dy, partial));
  return c.scope().status();
}
absl::Status ExpGradient(GradientContext& c) {
  ASSIGN_OR_RETURN(const Output dy, DenseGradient(c));
  const Scope s = AfterGradient(c, dy);
  c.SetDx(0, Times(s, dy, Conjugate(s, c.output())));
  return c.scope().status();
}
absl::Status Expm1Gradient(GradientContext& c) {
  return ByDerivative(c, [](const Scope& s, Output x) { return s.Op("Exp", {x}); });
}
absl::Status LogGradient(GradientContext& c) {
  return ByDerivative(c, [](const Scope& s, Output x) { return s.Op("Reciprocal", {x}); });
}
absl::Status Log1pGradient(GradientContext& c) {
  return ByDerivative(
      c, [](const Scope& s, Output x) { return s.Op("Reciprocal", {Plus(s, 1.0, x)}); });
}
absl::Status SinhGradient(GradientContext& c) {
  return ByDerivative(c, [](const Scope& s, Output x) { return s.Op("Cosh", {x}); });
}
absl::Status CoshGradient(GradientContext& c) {
  return ByDerivative(c, [](const Scope& s, Output x) { return s.Op("Sinh", {x}); });
}
absl::Status SinGradient(GradientContext& c) {
  return ByDerivative(c, [](const Scope& s, Output x) { return s.Op("Cos", {x}); });
}
absl::Status CosGradient(GradientContext& c) {
  ASSIGN_OR_RETURN(const Output dy, DenseGradient(c));
  const Scope s = AfterGradient(c, dy);
  const Output x = Conjugate(s, c.input(0));
  const Output negative = s.Op("Neg", {dy});
  c.SetDx(0, Times(s, negative, s.Op("Sin", {x})));
  return c.scope().status();
}
absl::Status TanGradient(GradientContext& c) {
  ASSIGN_OR_RETURN(const Output dy, DenseGradient(c));
  const Scope s = AfterGradient(c, dy);
  const Output x = Conjugate(s, c.input(0));
  const Output secant = s.Op("Reciprocal", {s.Op("Cos", {x})});
  c.SetDx(0, Times(s, s.Op("Square", {secant}), dy));
  return c.scope().status();
}
// 1 / sqrt(1 - x^2).
Output ArcSineDerivative(const Scope& s, Output x, DType dtype) {
  const Output square = s.Op("Square", {x});
  const Output one = ConstOf(s, dtype, 1);
  const Output root = s.Op("Sqrt", {s.Op("Sub", {one, square})});
  return s.Op("Reciprocal", {root});
}
absl::Status AsinGradient(GradientContext& c) {
  return ByDerivative(
      c, [](const Scope& s, Output x) { return ArcSineDerivative(s, x, x.base_dtype()); });
}
absl::Status AcosGradient(GradientContext& c) {
  ASSIGN_OR_RETURN(const Output dy, DenseGradient(c));
  const Scope s = AfterGradient(c, dy);
  const Output x = Conjugate(s, c.input(0));
  const Output derivative = ArcSineDerivative(s, x, dy.base_dtype());
  c.SetDx(0, Times(s, s.Op("Neg", {dy}), derivative));
  return c.scope().status();
}
absl::Status AtanGradient(GradientContext& c) {
  return ByDerivative(c, [](const Scope& s, Output x) {
    const Output square = s.Op("Square", {x});
    const Output one = ConstOf(s, x.base_dtype(), 1);
    return s.Op("Reciprocal", {s.Op("Add", {one, square})});
  });
}
absl::Status AtanhGradient(GradientContext& c) {
  return ByDerivative(c, [](const Scope& s, Output x) {
    const Output square = s.Op("Square", {x});
    const Output one = ConstOf(s, x.base_dtype(), 1);
    return s.Op("Reciprocal", {s.Op("Sub", {one, square})});
  });
}
// dy / f(y).
absl::Status ByInverse(GradientContext& c, const char* function) {
  ASSIGN_OR_RETURN(const Output dy, DenseGradient(c));
  const Scope s = AfterGradient(c, dy);
  const Output y = Conjugate(s, c.output());
  c.SetDx(0, Over(s, dy, s.Op(function, {y})));
  return c.scope().status();
}
absl::Status AsinhGradient(GradientContext& c) {
  return ByInverse(c, "Cosh");
}
absl::Status AcoshGradient(GradientContext& c) {
  return ByInverse(c, "Sinh");
}

absl::Status ByGradOp(GradientContext& c, const char* grad_op) {
  ASSIGN_OR_RETURN(const Output dy, DenseGradient(c));
  const Scope s = AfterGradient(c, dy);
  const Output y = Conjugate(s, c.output());
  c.SetDx(0, s.Op(grad_op, {y, dy}));
  return c.scope().status();
}
absl::Status TanhGradient(GradientContext& c) {
  return ByGradOp(c, "TanhGrad");
}
absl::Status SigmoidGradient(GradientContext& c) {
  return ByGradOp(c, "SigmoidGrad");
}

absl::Status TanhGradGradient(GradientContext& c) {
  ASSIGN_OR_RETURN(const Output dy, DenseGradient(c));
  const Scope s = AfterGradient(c, dy);
  const Output a = Conjugate(s, c.input(0));
  const Output b = Conjugate(s, c.input(1));
  c.SetDx(0, Times(s, Times(s, Times(s, dy, -2.0), b), a));
  c.SetDx(1, s.Op("TanhGrad", {a, dy}));
  return c.scope().status();
}
absl::Status SigmoidGradGradient(GradientContext& c) {
  ASSIGN_OR_RETURN(const Output dy, DenseGradient(c));
  const Scope s = AfterGradient(c, dy);
  const Output a = Conjugate(s, c.input(0));
  const Output b = Conjugate(s, c.input(1));
  const Output gb = Times(s, dy, b);
  const Output twice = Times(s, Times(s, 2.0, gb), a);
  c.SetDx(0, Minus(s, gb, twice));
  c.SetDx(1, s.Op("SigmoidGrad", {a, dy}));
  return c.scope().status();
}
// dy * factor * exp(-x^2); the factor is made outside the control dependency, as TensorFlow does.
absl::Status ErfLikeGradient(GradientContext& c, double factor) {
  ASSIGN_OR_RETURN(const Output dy, DenseGradient(c));
  const Output constant = ConstOf(c.scope(), dy.base_dtype(), factor);
  const Scope s = AfterGradient(c, dy);
  const Output x = Conjugate(s, c.input(0));
  const Output scaled = Times(s, dy, constant);
  const Output bell = s.Op("Exp", {s.Op("Neg", {s.Op("Square", {x})})});
  c.SetDx(0, Times(s, scaled, bell));
  return c.scope().status();
}
absl::Status ErfGradient(GradientContext& c) {
  return ErfLikeGradient(c, 2 * std::numbers::inv_sqrtpi);
}
absl::Status ErfcGradient(GradientContext& c) {
  return ErfLikeGradient(c, -2 * std::numbers::inv_sqrtpi);
}

OpBuilder& UnaryDef(OpBuilder& op, const char* types, const char* doc, GradientFunction gradient) {
  return op.Attr(types)
      .Input("x: T")
      .Output("y: T")
      .Doc(doc)
      .Shape(UnchangedShape)
      .Gradient(std::move(gradient));
}
OpBuilder& GradDef(OpBuilder& op, const char* doc, GradientFunction gradient) {
  return op.Attr(kFieldTypes)
      .Input("y: T")
      .Input("dy: T")
      .Output("z: T")
      .Doc(doc)
      .Shape(UnchangedShape)
      .Gradient(std::move(gradient));
}

#define MUSTER_FIELD_OP(Name, gpu_types, doc)         \
  DEFINE_OP(Name) {                                   \
    UnaryDef(op, kFieldTypes, doc, Name##Gradient)    \
        .CpuTypes<Fields>("T", Unary<Name>(#Name))    \
        .GpuTypes("T", gpu_types, UnaryOnGpu(#Name)); \
  }
MUSTER_FIELD_OP(Exp, kGpuFields, "e to the power of each value.")
MUSTER_FIELD_OP(Expm1, kGpuFloats, "e to the power of each value, minus one, precise near zero.")
MUSTER_FIELD_OP(Log, kGpuFloats, "Natural logarithms.")
MUSTER_FIELD_OP(Log1p, kGpuFloats, "Natural logarithms of one plus each value, precise near zero.")
MUSTER_FIELD_OP(Tanh, kGpuFloats, "Hyperbolic tangents.")
MUSTER_FIELD_OP(Sigmoid, kGpuFloats, "1 / (1 + exp(-x)).")
MUSTER_FIELD_OP(Sin, kGpuFloats, "Sines.")
MUSTER_FIELD_OP(Cos, kGpuFloats, "Cosines.")
MUSTER_FIELD_OP(Tan, kGpuFloats, "Tangents.")
MUSTER_FIELD_OP(Asin, kGpuPreciseFloats, "Arc sines.")
MUSTER_FIELD_OP(Acos, kGpuPreciseFloats, "Arc cosines.")
MUSTER_FIELD_OP(Atan, kGpuPreciseFloats, "Arc tangents.")
MUSTER_FIELD_OP(Sinh, kGpuPreciseFloats, "Hyperbolic sines.")
MUSTER_FIELD_OP(Cosh, kGpuPreciseFloats, "Hyperbolic cosines.")
MUSTER_FIELD_OP(Asinh, kGpuPreciseFloats, "Inverse hyperbolic sines.")
MUSTER_FIELD_OP(Acosh, kGpuPreciseFloats, "Inverse hyperbolic cosines.")
MUSTER_FIELD_OP(Atanh, kGpuPreciseFloats, "Inverse hyperbolic tangents.")
#undef MUSTER_FIELD_OP

DEFINE_OP(Erf) {
  UnaryDef(op, kFloatTypes, "The error function.", ErfGradient)
      .CpuTypes<Floats>("T", Unary<Erf>())
      .GpuTypes("T", kGpuFloats, UnaryOnGpu("Erf"));
}
DEFINE_OP(Erfc) {
  UnaryDef(op, kFloatTypes, "One minus the error function.", ErfcGradient)
      .CpuTypes<Floats>("T", Unary<Erfc>())
      .GpuTypes("T", kGpuFloats, UnaryOnGpu("Erfc"));
}
DEFINE_OP(TanhGrad) {
  GradDef(op, "Gradient of Tanh: dy * (1 - y^2).", TanhGradGradient)
      .CpuTypes<Fields>("T", SameSizeBinary<TanhGrad>())
      .GpuTypes("T", kGpuFloats, SameSizeBinaryOnGpu("TanhGrad"));
}
DEFINE_OP(SigmoidGrad) {
  GradDef(op, "Gradient of Sigmoid: dy * y * (1 - y).", SigmoidGradGradient)
      .CpuTypes<Fields>("T", SameSizeBinary<SigmoidGrad>())
      .GpuTypes("T", kGpuFloats, SameSizeBinaryOnGpu("SigmoidGrad"));
}

}  // namespace
}  // namespace muster
