// Unary ops that need little more than arithmetic: signs, roundings, powers and their gradients.
#include <cmath>
#include <complex>

#include "muster/ops/math/elementwise.h"
#include "muster/ops/math/elementwise_gpu.h"
#include "muster/ops/math/gradient_helpers.h"

namespace muster {
namespace {

constexpr const char* kFloatTypes = "T: {bfloat16, half, float, double}";
constexpr const char* kFieldTypes = "T: {bfloat16, half, float, double, complex64, complex128}";
constexpr const char* kSignedTypes =
    "T: {bfloat16, half, float, double, int8, int16, int32, int64, complex64, complex128}";

using Fields = Join<Floats, Complexes>;
using SignedReals = Join<Floats, SignedIntegers>;
using SignedNumbers = Join<SignedReals, Complexes>;

template <typename T>
constexpr bool kIsComplex = false;
template <typename T>
constexpr bool kIsComplex<std::complex<T>> = true;

// Without the recovery of infinities that operator* does element by element.
template <typename T>
T Product(T a, T b) {
  if constexpr (kIsComplex<T>) {
    return T(a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real());
  } else if constexpr (std::is_same_v<T, uint16_t>) {
    return static_cast<uint16_t>(uint32_t{a} * uint32_t{b});  // int would overflow
  } else {
    return static_cast<T>(a * b);
  }
}
template <typename T>
T Conjugated(T x) {
  if constexpr (kIsComplex<T>)
    return std::conj(x);
  else
    return x;
}

struct Abs {
  static constexpr double kCost = 0.3;
  template <typename T>
  static T Apply(T x) {
    if constexpr (std::is_integral_v<T>) {
      using U = std::make_unsigned_t<T>;
      return static_cast<T>(x < 0 ? static_cast<U>(0 - static_cast<U>(x)) : static_cast<U>(x));
    } else {
      return std::fabs(x);
    }
  }
};
struct Neg {
  static constexpr bool kWraps = true;
  static constexpr double kCost = 0.3;
  template <typename T>
  static T Apply(T x) {
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(0 - x);
    else
      return -x;
  }
};
struct Sign {
  static constexpr double kCost = 0.4;
  template <typename T>
  static T Apply(T x) {
    if constexpr (kIsComplex<T>) {
      return x == T(0) ? T(0) : x / std::abs(x);
    } else {
      const T sign = static_cast<T>((x > T(0) ? 1 : 0) - (x < T(0) ? 1 : 0));
      return x != x ? x : sign;
    }
  }
};
struct Square {
  static constexpr bool kWraps = true;
  static constexpr double kCost = 0.3;
  template <typename T>
  static T Apply(T x) {
    return Product(x, x);
  }
};
struct Sqrt {
  static constexpr double kCost = 1;
  template <typename T>
  static T Apply(T x) {
    return std::sqrt(x);
  }
};
struct Rsqrt {
  static constexpr double kCost = 1.5;
  template <typename T>
  static T Apply(T x) {
    return T(1) / std::sqrt(x);
  }
};
struct Reciprocal {
  static constexpr double kCost = 0.6;
  template <typename T>
  static T Apply(T x) {
    return T(1) / x;
  }
};
struct Floor {
  static constexpr double kCost = 0.3;
  template <typename T>
  static T Apply(T x) {
    return std::floor(x);
  }
};
struct Ceil {
  static constexpr double kCost = 0.3;
  template <typename T>
  static T Apply(T x) {
    return std::ceil(x);
  }
};
// Half to even.
struct Round {
  static constexpr double kCost = 0.3;
  template <typename T>
  static T Apply(T x) {
    if constexpr (std::is_integral_v<T>)
      return x;
    else
      return std::rint(x);
  }
};
struct IsNan {
  static constexpr double kCost = 0.3;
  template <typename T>
  static bool Apply(T x) {
    return x != x;
  }
};
struct IsInf {
  static constexpr double kCost = 0.3;
  template <typename T>
  static bool Apply(T x) {
    return std::fabs(x) == std::numeric_limits<T>::infinity();
  }
};
struct IsFinite {
  static constexpr double kCost = 0.3;
  template <typename T>
  static bool Apply(T x) {
    return std::fabs(x) < std::numeric_limits<T>::infinity();
  }
};
struct Not {
  static constexpr double kCost = 0.2;
  static bool Apply(bool x) { return !x; }
};
struct Complement {
  static constexpr bool kWraps = true;
  static constexpr double kCost = 0.3;
  template <typename T>
  static T Apply(T x) {
    return static_cast<T>(~x);
  }
};

// f'(x) * dy in terms of y = f(x).
struct SqrtGrad {
  static constexpr double kCost = 1;
  template <typename T>
  static T Apply(const T& y, const T& dy) {
    return Product(T(0.5), dy) / Conjugated(y);
  }
};
struct RsqrtGrad {
  static constexpr double kCost = 0.6;
  template <typename T>
  static T Apply(const T& y, const T& dy) {
    const T conjugate = Conjugated(y);
    return Product(Product(T(-0.5), Product(dy, conjugate)), Product(conjugate, conjugate));
  }
};
struct ReciprocalGrad {
  static constexpr double kCost = 0.5;
  template <typename T>
  static T Apply(const T& y, const T& dy) {
    const T conjugate = Conjugated(y);
    return Product(Product(conjugate, -dy), conjugate);
  }
};

absl::Status AbsGradient(GradientContext& c) {
  ASSIGN_OR_RETURN(const Output dy, DenseGradient(c));
  c.SetDx(0, Times(c.scope(), dy, c.Op("Sign", {c.input(0)})));
  return c.scope().status();
}
absl::Status NegGradient(GradientContext& c) {
  if (const auto* slices = std::get_if<IndexedSlices>(&c.gradient(0))) {
    c.SetDx(0, IndexedSlices{c.Op("Neg", {slices->values}), slices->indices, slices->dense_shape});
  } else {
    c.SetDx(0, c.Op("Neg", {c.dy()}));
  }
  return c.scope().status();
}
absl::Status SignGradient(GradientContext& c) {
  const Output shape = c.ShapeOf(c.input(0));
  c.SetDx(0, Zeros(c.scope(), shape, c.input(0).base_dtype()));
  return c.scope().status();
}
absl::Status SquareGradient(GradientContext& c) {
  ASSIGN_OR_RETURN(const Output dy, DenseGradient(c));
  const Scope s = AfterGradient(c, dy);
  const Output x = Conjugate(s, c.input(0));
  const Output two = ConstOf(s, c.input(0).base_dtype(), 2);
  const Output product = s.Op("Mul", {x, two});
  c.SetDx(0, s.Op("Mul", {dy, product}));
  return c.scope().status();
}
template <const char* op>
absl::Status OutputGradient(GradientContext& c) {
  c.SetDx(0, c.Op(op, {c.output(), c.dy()}));
  return c.scope().status();
}
constexpr char kSqrtGrad[] = "SqrtGrad";
constexpr char kRsqrtGrad[] = "RsqrtGrad";
constexpr char kReciprocalGrad[] = "ReciprocalGrad";

absl::Status ReciprocalGradGradient(GradientContext& c) {
  ASSIGN_OR_RETURN(const Output dy, DenseGradient(c));
  const Scope s = AfterGradient(c, dy);
  const Output a = Conjugate(s, c.input(0));
  const Output g = Conjugate(s, dy);
  c.SetDx(0, Times(s, Times(s, Times(s, g, -2.0), c.input(1)), a));
  c.SetDx(1, s.Op("ReciprocalGrad", {a, dy}));
  return c.scope().status();
}
absl::Status SqrtGradGradient(GradientContext& c) {
  ASSIGN_OR_RETURN(const Output dy, DenseGradient(c));
  const Scope s = AfterGradient(c, dy);
  const Output ga = Over(s, dy, c.input(0));
  const Output negative = s.Op("Neg", {Conjugate(s, ga)});
  c.SetDx(0, Times(s, negative, c.output()));
  c.SetDx(1, Times(s, 0.5, ga));
  return c.scope().status();
}
absl::Status RsqrtGradGradient(GradientContext& c) {
  ASSIGN_OR_RETURN(const Output dy, DenseGradient(c));
  const Scope s = AfterGradient(c, dy);
  const Output a = Conjugate(s, c.input(0));
  const Output g = Conjugate(s, dy);
  const Output scaled = Times(s, Times(s, -1.5, g), c.input(1));
  c.SetDx(0, Times(s, scaled, s.Op("Square", {a})));
  c.SetDx(1, s.Op("RsqrtGrad", {a, dy}));
  return c.scope().status();
}
absl::Status NoneGradient(GradientContext&) {
  return absl::OkStatus();
}

OpBuilder& UnaryDef(OpBuilder& op, const char* types, const char* doc) {
  return op.Attr(types).Input("x: T").Output("y: T").Doc(doc).Shape(UnchangedShape);
}
OpBuilder& GradDef(OpBuilder& op, const char* doc) {
  return op.Attr(kFieldTypes)
      .Input("y: T")
      .Input("dy: T")
      .Output("z: T")
      .Doc(doc)
      .Shape(UnchangedShape);
}
OpBuilder& TestDef(OpBuilder& op, const char* doc) {
  return op.Attr(kFloatTypes).Input("x: T").Output("y: bool").Doc(doc).Shape(UnchangedShape);
}

DEFINE_OP(Abs) {
  UnaryDef(op, "T: {bfloat16, half, float, double, int8, int16, int32, int64}", "Absolute values.")
      .Gradient(AbsGradient)
      .CpuTypes<SignedReals>("T", Unary<Abs>("Abs"))
      .GpuTypes("T", With(kGpuFloats, {DType::kInt64}), UnaryOnGpu("Abs"))
      .GpuOnHost("T");
}
DEFINE_OP(Neg) {
  UnaryDef(op, kSignedTypes, "Values with the opposite sign.")
      .Gradient(NegGradient)
      .CpuTypes<SignedNumbers>("T", Unary<Neg>("Neg"))
      .GpuTypes("T", With(kGpuFields, {DType::kInt64}), UnaryOnGpu("Neg"))
      .GpuOnHost("T");
}
DEFINE_OP(Sign) {
  UnaryDef(op, kSignedTypes, "-1, 0 or 1; a complex number divided by its modulus.")
      .Gradient(SignGradient)
      .CpuTypes<SignedNumbers>("T", Unary<Sign>())
      .GpuTypes("T", With(kGpuFields, {DType::kInt64}), UnaryOnGpu("Sign"))
      .GpuOnHost("T");
}
DEFINE_OP(Square) {
  UnaryDef(op,
           "T: {bfloat16, half, float, double, int8, int16, int32, int64, uint8, uint16, uint32, "
           "uint64, complex64, "
           "complex128}",
           "Values times themselves.")
      .Gradient(SquareGradient)
      .CpuTypes<Numbers>("T", Unary<Square>("Square"))
      .GpuTypes("T", With(kGpuFloats, {DType::kInt64}), UnaryOnGpu("Square"))
      .GpuOnHost("T");
}
DEFINE_OP(Sqrt) {
  UnaryDef(op, kFieldTypes, "Square roots.")
      .Gradient(OutputGradient<kSqrtGrad>)
      .CpuTypes<Fields>("T", Unary<Sqrt>("Sqrt"))
      .GpuTypes("T", kGpuFloats, UnaryOnGpu("Sqrt"));
}
DEFINE_OP(Rsqrt) {
  UnaryDef(op, kFieldTypes, "Reciprocals of square roots.")
      .Gradient(OutputGradient<kRsqrtGrad>)
      .CpuTypes<Fields>("T", Unary<Rsqrt>("Rsqrt"))
      .GpuTypes("T", kGpuFloats, UnaryOnGpu("Rsqrt"));
}
DEFINE_OP(Reciprocal) {
  UnaryDef(op, kSignedTypes, "One divided by each value.")
      .Gradient(OutputGradient<kReciprocalGrad>)
      .CpuTypes<Fields>("T", Unary<Reciprocal>("Reciprocal"))
      .GpuTypes("T", With(kGpuFloats, {DType::kInt64}), UnaryOnGpu("Reciprocal"));
}
DEFINE_OP(Inv) {
  UnaryDef(op, kSignedTypes, "The old name of Reciprocal.")
      .Gradient(OutputGradient<kReciprocalGrad>)
      .CpuTypes<Fields>("T", Unary<Reciprocal>("Inv"))
      .GpuTypes("T", With(kGpuFloats, {DType::kInt64}), UnaryOnGpu("Reciprocal"));
}
DEFINE_OP(SqrtGrad) {
  GradDef(op, "Gradient of Sqrt: dy / (2 * y).")
      .Gradient(SqrtGradGradient)
      .CpuTypes<Fields>("T", SameSizeBinary<SqrtGrad>())
      .GpuTypes("T", kGpuFloats, SameSizeBinaryOnGpu("SqrtGrad"));
}
DEFINE_OP(RsqrtGrad) {
  GradDef(op, "Gradient of Rsqrt: -dy * y^3 / 2.")
      .Gradient(RsqrtGradGradient)
      .CpuTypes<Fields>("T", SameSizeBinary<RsqrtGrad>())
      .GpuTypes("T", kGpuFloats, SameSizeBinaryOnGpu("RsqrtGrad"));
}
DEFINE_OP(ReciprocalGrad) {
  GradDef(op, "Gradient of Reciprocal: -dy * y^2.")
      .Gradient(ReciprocalGradGradient)
      .CpuTypes<Fields>("T", SameSizeBinary<ReciprocalGrad>())
      .GpuTypes("T", kGpuFloats, SameSizeBinaryOnGpu("ReciprocalGrad"));
}
DEFINE_OP(InvGrad) {
  GradDef(op, "The old name of ReciprocalGrad.")
      .Gradient(ReciprocalGradGradient)
      .CpuTypes<Fields>("T", SameSizeBinary<ReciprocalGrad>())
      .GpuTypes("T", kGpuFloats, SameSizeBinaryOnGpu("ReciprocalGrad"));
}
DEFINE_OP(Floor) {
  UnaryDef(op, kFloatTypes, "The largest integers that are not greater.")
      .Gradient(NoneGradient)
      .CpuTypes<Floats>("T", Unary<Floor>("Floor"))
      .GpuTypes("T", kGpuFloats, UnaryOnGpu("Floor"));
}
DEFINE_OP(Ceil) {
  UnaryDef(op, kFloatTypes, "The smallest integers that are not less.")
      .Gradient(NoneGradient)
      .CpuTypes<Floats>("T", Unary<Ceil>("Ceil"))
      .GpuTypes("T", kGpuFloats, UnaryOnGpu("Ceil"));
}
DEFINE_OP(Round) {
  UnaryDef(op, kSignedTypes, "The nearest integers; halves go to the even one.")
      .Gradient(NoneGradient)
      .CpuTypes<Join<Floats, Indices>>("T", Unary<Round>("Round"))
      .GpuTypes("T", With(kGpuFloats, {DType::kInt32, DType::kInt64}), UnaryOnGpu("Round"));
}
DEFINE_OP(Rint) {
  UnaryDef(op, kFloatTypes, "The nearest integers; halves go to the even one.")
      .Gradient(NoneGradient)
      .CpuTypes<Floats>("T", Unary<Round>("Rint"))
      .GpuTypes("T", kGpuPreciseFloats, UnaryOnGpu("Round"));
}
DEFINE_OP(IsNan) {
  TestDef(op, "Which values are not a number.")
      .CpuTypes<Floats>("T", Unary<IsNan>())
      .GpuTypes("T", kGpuFloats, UnaryOnGpu("IsNan"));
}
DEFINE_OP(IsInf) {
  TestDef(op, "Which values are infinite.")
      .CpuTypes<Floats>("T", Unary<IsInf>())
      .GpuTypes("T", kGpuFloats, UnaryOnGpu("IsInf"));
}
DEFINE_OP(IsFinite) {
  TestDef(op, "Which values are finite.")
      .CpuTypes<Floats>("T", Unary<IsFinite>())
      .GpuTypes("T", kGpuFloats, UnaryOnGpu("IsFinite"));
}
DEFINE_OP(LogicalNot) {
  op.Input("x: bool").Output("y: bool").Doc("The other truth value.").Shape(UnchangedShape);
  op.NoGradient("truth values have no derivative")
      .Cpu(ElementwiseKernel(UnarySpecOf<Not, bool>()))
      .GpuUntyped(UnaryOnGpu("Not")(DType::kBool));
}
DEFINE_OP(Invert) {
  UnaryDef(op, "T: {int8, int16, int32, int64, uint8, uint16, uint32, uint64}", "All bits flipped.")
      .NoGradient("bits have no derivative")
      .CpuTypes<Integers>("T", Unary<Complement>())
      .GpuTypes("T", kGpuIntegers, UnaryOnGpu("Complement"));
}

}  // namespace
}  // namespace muster
