// Sums, differences, products, quotients and powers, with broadcasting.
#include <cmath>
#include <complex>

#include "muster/ops/math/elementwise.h"
#include "muster/ops/math/gradient_helpers.h"

namespace muster {
namespace {

constexpr const char* kDivisionTypes =
    "T: {bfloat16, half, float, double, uint8, int8, uint16, int16, int32, uint32, uint64, int64, "
    "complex64, "
    "complex128}";
constexpr const char* kDivisionByZero = "Integer division by zero";
constexpr const char* kNegativePower = "Integers to negative integer powers are not allowed";

using Fields = Join<Floats, Complexes>;

template <typename T>
constexpr bool kIsComplex = false;
template <typename T>
constexpr bool kIsComplex<std::complex<T>> = true;

template <typename T>
T Product(const T& a, const T& b) {
  if constexpr (kIsComplex<T>) {
    return T(a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real());
  } else if constexpr (std::is_same_v<T, uint16_t>) {
    return static_cast<uint16_t>(uint32_t{a} * uint32_t{b});  // int would overflow
  } else {
    return static_cast<T>(a * b);
  }
}

struct Add {
  static constexpr bool kWraps = true;
  static constexpr double kCost = 0.3;
  template <typename T>
  static T Apply(const T& x, const T& y) {
    if constexpr (std::is_same_v<T, std::string>)
      return x + y;
    else
      return static_cast<T>(x + y);
  }
};
struct Sub {
  static constexpr bool kWraps = true;
  static constexpr double kCost = 0.3;
  template <typename T>
  static T Apply(const T& x, const T& y) {
    return static_cast<T>(x - y);
  }
};
struct Mul {
  static constexpr bool kWraps = true;
  static constexpr double kCost = 0.3;
  template <typename T>
  static T Apply(const T& x, const T& y) {
    return Product(x, y);
  }
};
struct MulNoNan {
  static constexpr double kCost = 0.4;
  template <typename T>
  static T Apply(const T& x, const T& y) {
    return y == T(0) ? T(0) : Product(x, y);
  }
};
struct SquaredDifference {
  static constexpr bool kWraps = true;
  static constexpr double kCost = 0.3;
  template <typename T>
  static T Apply(const T& x, const T& y) {
    const T difference = x - y;
    if constexpr (kIsComplex<T>)
      return Product(difference, std::conj(difference));
    else
      return Product(difference, difference);
  }
};
struct Divide {
  static constexpr double kCost = 0.6;
  template <typename T>
  static T Apply(const T& x, const T& y) {
    return x / y;
  }
};
struct DivNoNan {
  static constexpr double kCost = 0.7;
  template <typename T>
  static T Apply(const T& x, const T& y) {
    return y == T(0) ? T(0) : x / y;
  }
};
struct Xdivy {
  static constexpr double kCost = 0.7;
  template <typename T>
  static T Apply(const T& x, const T& y) {
    return x == T(0) ? T(0) : x / y;
  }
};
struct Xlogy {
  static constexpr double kCost = 10;
  template <typename T>
  static T Apply(const T& x, const T& y) {
    return x == T(0) ? T(0) : x * std::log(y);
  }
};
struct Xlog1py {
  static constexpr double kCost = 10;
  template <typename T>
  static T Apply(const T& x, const T& y) {
    if (x == T(0)) return T(0);
    if constexpr (kIsComplex<T>) {
      // What rounding takes from the sum it takes from the difference too (Kahan).
      const T sum = T(1) + y;
      if (sum == T(1)) return x * y;
      const T log(std::log(std::abs(sum)), std::arg(sum));
      return std::isinf(std::abs(sum)) ? x * log : x * (y * (log / (sum - T(1))));
    } else {
      return x * std::log1p(y);
    }
  }
};

// Quotient and remainder that fail for a zero divisor; the most negative number divided by -1 wraps
// around.
template <typename T>
bool Divisible(T x, T y, bool& ok, T& quotient, T& remainder) {
  if (y == 0) {
    ok = false;
    return false;
  }
  if constexpr (std::is_signed_v<T>) {
    if (y == T(-1)) {
      using U = std::make_unsigned_t<T>;
      quotient = static_cast<T>(static_cast<U>(0 - static_cast<U>(x)));
      remainder = 0;
      return true;
    }
  }
  quotient = static_cast<T>(x / y);
  remainder = static_cast<T>(x % y);
  return true;
}
struct TruncateDivInteger {
  static constexpr double kCost = 3;
  template <typename T>
  static T Apply(T x, T y, bool& ok) {
    T quotient = 0;
    T remainder = 0;
    Divisible(x, y, ok, quotient, remainder);
    return quotient;
  }
};
struct TruncateModInteger {
  static constexpr double kCost = 3;
  template <typename T>
  static T Apply(T x, T y, bool& ok) {
    T quotient = 0;
    T remainder = 0;
    Divisible(x, y, ok, quotient, remainder);
    return remainder;
  }
};
struct FloorDivInteger {
  static constexpr double kCost = 3;
  template <typename T>
  static T Apply(T x, T y, bool& ok) {
    T quotient = 0;
    T remainder = 0;
    if (Divisible(x, y, ok, quotient, remainder) && remainder != 0 && (remainder < 0) != (y < 0))
      --quotient;
    return quotient;
  }
};
struct FloorModInteger {
  static constexpr double kCost = 3;
  template <typename T>
  static T Apply(T x, T y, bool& ok) {
    T quotient = 0;
    T remainder = 0;
    if (Divisible(x, y, ok, quotient, remainder) && remainder != 0 && (remainder < 0) != (y < 0)) {
      remainder = static_cast<T>(remainder + y);
    }
    return remainder;
  }
};
struct FloorDivReal {
  static constexpr double kCost = 0.7;
  template <typename T>
  static T Apply(const T& x, const T& y) {
    return std::floor(x / y);
  }
};
struct TruncateDivReal {
  static constexpr double kCost = 0.7;
  template <typename T>
  static T Apply(const T& x, const T& y) {
    return std::trunc(x / y);
  }
};
struct Floor {
  template <typename T>
  static T Apply(T x) {
    return std::floor(x);
  }
};
struct Truncate {
  template <typename T>
  static T Apply(T x) {
    return std::trunc(x);
  }
};
// A 16-bit quotient is rounded before it is cut.
template <typename Cut, typename T>
KernelFactory CutQuotient() {
  BinarySpec spec = BinarySpecOf<Divide, T>();
  spec.after_rounding = elementwise::RunUnaryLoop<Cut, float>;
  return ElementwiseKernel(spec);
}
struct FloorModReal {
  static constexpr double kCost = 15;
  template <typename T>
  static T Apply(const T& x, const T& y) {
    const T remainder = std::fmod(x, y);
    return remainder != 0 && (remainder < 0) != (y < 0) ? remainder + y : remainder;
  }
};
struct TruncateModReal {
  static constexpr double kCost = 15;
  template <typename T>
  static T Apply(const T& x, const T& y) {
    return std::fmod(x, y);
  }
};
struct PowInteger {
  static constexpr double kCost = 10;
  template <typename T>
  static T Apply(T x, T y, bool& ok) {
    if (y < 0) {
      ok = false;
      return 0;
    }
    uint64_t power = 1;
    uint64_t base = static_cast<uint64_t>(x);
    for (uint64_t rest = static_cast<uint64_t>(y); rest != 0; rest >>= 1) {
      if (rest & 1) power *= base;
      base *= base;
    }
    return static_cast<T>(power);
  }
};
struct PowField {
  static constexpr double kCost = 20;
  template <typename T>
  static T Apply(const T& x, const T& y) {
    return std::pow(x, y);
  }
};
struct Atan2 {
  static constexpr double kCost = 20;
  template <typename T>
  static T Apply(const T& y, const T& x) {
    return std::atan2(y, x);
  }
};
struct NextAfter {
  static constexpr double kCost = 5;
  template <typename T>
  static T Apply(const T& from, const T& to) {
    return std::nextafter(from, to);
  }
};
// A NaN on either side gives NaN; of two equal values (zeros of different sign) the second is
// taken.
struct Maximum {
  static constexpr double kCost = 0.3;
  template <typename T>
  static T Apply(const T& x, const T& y) {
    return ((x > y) | (x != x)) ? x : y;
  }
};
struct Minimum {
  static constexpr double kCost = 0.3;
  template <typename T>
  static T Apply(const T& x, const T& y) {
    return ((x < y) | (x != x)) ? x : y;
  }
};

// --- Gradients

absl::Status AddGradient(GradientContext& c) {
  ASSIGN_OR_RETURN(const Output dy, DenseGradient(c));
  if (c.ShapesEqual()) {
    c.SetDx(0, dy);
    c.SetDx(1, dy);
    return c.scope().status();
  }
  const auto [rx, ry] = c.SmartBroadcastArgs();
  c.SetDx(0, Reduce(c.scope(), dy, rx));
  c.SetDx(1, Reduce(c.scope(), dy, ry));
  return c.scope().status();
}
absl::Status SubGradient(GradientContext& c) {
  ASSIGN_OR_RETURN(const Output dy, DenseGradient(c));
  if (c.ShapesEqual()) {
    c.SetDx(0, dy);
    c.SetDx(1, c.Op("Neg", {dy}));
    return c.scope().status();
  }
  const auto [rx, ry] = c.SmartBroadcastArgs();
  c.SetDx(0, Reduce(c.scope(), dy, rx));
  c.SetDx(1, Reduce(c.scope(), c.Op("Neg", {dy}), ry));
  return c.scope().status();
}
absl::Status MulGradient(GradientContext& c) {
  ASSIGN_OR_RETURN(const Output dy, DenseGradient(c));
  const Output x = c.input(0);
  const Output y = c.input(1);
  const bool fast = dy.base_dtype() == DType::kFloat || dy.base_dtype() == DType::kInt32;
  if (fast && c.ShapesEqual()) {
    c.SetDx(0, c.Op("Mul", {dy, y}));
    c.SetDx(1, c.Op("Mul", {dy, x}));
    return c.scope().status();
  }
  const auto [rx, ry] = c.SmartBroadcastArgs();
  const Output cx = Conjugate(c.scope(), x);
  const Output cy = Conjugate(c.scope(), y);
  c.SetDx(0, Reduce(c.scope(), c.Op("Mul", {dy, cy}), rx));
  c.SetDx(1, Reduce(c.scope(), c.Op("Mul", {cx, dy}), ry));
  return c.scope().status();
}
absl::Status MulNoNanGradient(GradientContext& c) {
  ASSIGN_OR_RETURN(const Output dy, DenseGradient(c));
  const Output x = c.input(0);
  const Output y = c.input(1);
  if (c.ShapesEqual()) {
    c.SetDx(0, c.Op("MulNoNan", {dy, y}));
    c.SetDx(1, c.Op("MulNoNan", {x, dy}));
    return c.scope().status();
  }
  const auto [rx, ry] = c.BroadcastArgs();
  c.SetDx(0, Reduce(c.scope(), c.Op("MulNoNan", {dy, y}), rx));
  c.SetDx(1, Reduce(c.scope(), c.Op("MulNoNan", {x, dy}), ry));
  return c.scope().status();
}
// dy / y and dy * ((-x / y) / y), where `op` (called `name`) divides.
absl::Status QuotientGradient(GradientContext& c, const char* op, const char* name) {
  ASSIGN_OR_RETURN(const Output dy, DenseGradient(c));
  const auto [rx, ry] = c.BroadcastArgs();
  const Output x = Conjugate(c.scope(), c.input(0));
  const Output y = Conjugate(c.scope(), c.input(1));
  c.SetDx(0, Reduce(c.scope(), c.Op(op, {dy, y}, {}, name), rx));
  const Output negative = c.Op("Neg", {x});
  const Output once = c.Op(op, {negative, y}, {}, name);
  const Output twice = c.Op(op, {once, y}, {}, name);
  c.SetDx(1, Reduce(c.scope(), Times(c.scope(), dy, twice), ry));
  return c.scope().status();
}
absl::Status DivGradient(GradientContext& c) {
  return QuotientGradient(c, "RealDiv", "truediv");
}
absl::Status RealDivGradient(GradientContext& c) {
  return QuotientGradient(c, "RealDiv", "RealDiv");
}
absl::Status DivNoNanGradient(GradientContext& c) {
  return QuotientGradient(c, "DivNoNan", "div_no_nan");
}

absl::Status FloorModGradient(GradientContext& c) {
  ASSIGN_OR_RETURN(const Output dy, DenseGradient(c));
  const Output x = c.input(0);
  const Output y = c.input(1);
  const auto [rx, ry] = c.BroadcastArgs();
  const Output quotient = c.Op("FloorDiv", {x, y});
  c.SetDx(0, Reduce(c.scope(), dy, rx));
  const Output negative = c.Op("Neg", {quotient});
  c.SetDx(1, Reduce(c.scope(), Times(c.scope(), dy, negative), ry));
  return c.scope().status();
}
absl::Status NoneGradient(GradientContext&) {
  return absl::OkStatus();
}

absl::Status PowGradient(GradientContext& c) {
  ASSIGN_OR_RETURN(const Output dy, DenseGradient(c));
  const Scope& s = c.scope();
  const auto [rx, ry] = c.SmartBroadcastArgs();
  const Output x = Conjugate(s, c.input(0));
  const Output y = Conjugate(s, c.input(1));
  const Output scaled = Times(s, dy, y);
  const Output power = s.Op("Pow", {x, Minus(s, y, 1.0)});
  c.SetDx(0, Reduce(s, Times(s, scaled, power), rx));

  const Output z = Conjugate(s, c.output());
  // The logarithm only where it exists: no false singularity at zero.
  const DType dtype = c.input(0).base_dtype();
  const char* positive = IsComplex(dtype) ? "NotEqual" : "Greater";
  const NamedOp test(s, positive);
  const Output zero = ConstOf(test.inner(), dtype, 0, "y");
  const Output mask = test.Op(positive, {x, zero});
  const Output safe = s.Op("Select", {mask, x, EmitOnesLike(s, x, dtype)});
  const Output log = s.Op("Log", {safe});
  const Output log_x = s.Op("Select", {mask, log, EmitZerosLike(s, x)});
  const Output dz = Times(s, dy, z);
  c.SetDx(1, Reduce(s, Times(s, dz, log_x), ry));
  return s.status();
}
absl::Status ExtremumGradient(GradientContext& c, const char* test) {
  ASSIGN_OR_RETURN(const Output dy, DenseGradient(c));
  const Output x = c.input(0);
  const Output y = c.input(1);
  Reduction rx;
  Reduction ry;
  rx.shape = c.ShapeOf(x);
  ry.shape = c.ShapeOf(y);
  const Output zeros = Zeros(c.scope(), c.ShapeOf(dy), dy.base_dtype());
  const Output mask = c.Op(test, {x, y});
  const Output axes = c.Op("BroadcastGradientArgs", {rx.shape, ry.shape});
  rx.axes = axes;
  ry.axes = Output(axes.node, 1);
  c.SetDx(0, Reduce(c.scope(), c.Op("Select", {mask, dy, zeros}), rx));
  c.SetDx(1, Reduce(c.scope(), c.Op("Select", {mask, zeros, dy}), ry));
  return c.scope().status();
}
absl::Status MaximumGradient(GradientContext& c) {
  return ExtremumGradient(c, "GreaterEqual");
}
absl::Status MinimumGradient(GradientContext& c) {
  return ExtremumGradient(c, "LessEqual");
}

absl::Status SquaredDifferenceGradient(GradientContext& c) {
  ASSIGN_OR_RETURN(const Output dy, DenseGradient(c));
  const Output x = c.input(0);
  const Output y = c.input(1);
  const Scope s = AfterGradient(c, dy);
  const Output two = ConstOf(s, dy.base_dtype(), 2, "scalar");
  const Output twice = s.Op("Mul", {two, dy});
  const Output dx = Times(s, twice, Minus(s, x, y));
  if (c.ShapesEqual()) {
    c.SetDx(0, dx);
    c.SetDx(1, c.Op("Neg", {dx}));
    return c.scope().status();
  }
  const auto [rx, ry] = c.SmartBroadcastArgs();
  c.SetDx(0, Reduce(c.scope(), dx, rx));
  c.SetDx(1, c.Op("Neg", {Reduce(c.scope(), dx, ry)}));
  return c.scope().status();
}

// Gradients dx * dy of both operands in a scope that waits for dy; x != 0 as a number, for the ops
// that treat zero apart.
Output NotZero(const Scope& s, Output x) {
  const NamedOp cast(s, "Cast");
  Output zero = cast.inner().ConstScalar<float>(0, "x");
  if (x.base_dtype() != DType::kFloat) zero = cast.Op("Cast", {zero}, {{"DstT", x.base_dtype()}});
  const Output mask = s.Op("NotEqual", {x, zero});
  return s.Op("Cast", {mask}, {{"DstT", x.base_dtype()}});
}
absl::Status XlogyGradient(GradientContext& c) {
  ASSIGN_OR_RETURN(const Output dy, DenseGradient(c));
  const Output x = c.input(0);
  const Output y = c.input(1);
  const auto [rx, ry] = c.BroadcastArgs();
  const Scope s = AfterGradient(c, dy);
  const Output partial_x = s.Op("Xlogy", {NotZero(s, x), y});
  const Output partial_y = s.Op("Xdivy", {x, y});
  c.SetDx(0, Reduce(s, Times(s, partial_x, dy), rx));
  c.SetDx(1, Reduce(s, Times(s, partial_y, dy), ry));
  return c.scope().status();
}
absl::Status Xlog1pyGradient(GradientContext& c) {
  ASSIGN_OR_RETURN(const Output dy, DenseGradient(c));
  const Output x = c.input(0);
  const Output y = c.input(1);
  const auto [rx, ry] = c.BroadcastArgs();
  const Scope s = AfterGradient(c, dy);
  const Output partial_x = s.Op("Xlog1py", {NotZero(s, x), y});
  const Output partial_y = s.Op("Xdivy", {x, Plus(s, y, 1.0)});
  c.SetDx(0, Reduce(s, Times(s, partial_x, dy), rx));
  c.SetDx(1, Reduce(s, Times(s, partial_y, dy), ry));
  return c.scope().status();
}
absl::Status XdivyGradient(GradientContext& c) {
  ASSIGN_OR_RETURN(const Output dy, DenseGradient(c));
  const Output x = c.input(0);
  const Output y = c.input(1);
  const auto [rx, ry] = c.BroadcastArgs();
  const Scope s = AfterGradient(c, dy);
  const Output partial_x = s.Op("Xdivy", {NotZero(s, x), y});
  const Output negative = s.Op("Neg", {x});
  const Output partial_y = s.Op("Xdivy", {negative, Power(s, y, 2.0)});
  c.SetDx(0, Reduce(s, Times(s, partial_x, dy), rx));
  c.SetDx(1, Reduce(s, Times(s, partial_y, dy), ry));
  return c.scope().status();
}
absl::Status Atan2Gradient(GradientContext& c) {
  ASSIGN_OR_RETURN(const Output dy, DenseGradient(c));
  const Output y = c.input(0);
  const Output x = c.input(1);
  const Scope s = AfterGradient(c, dy);
  const Output x_square = s.Op("Square", {x});
  const Output y_square = s.Op("Square", {y});
  const Output scaled = Over(s, dy, Plus(s, x_square, y_square));
  Output gy = Times(s, x, scaled);
  Output gx = Times(s, s.Op("Neg", {y}), scaled);
  // TensorFlow 1.15 forgot the sums over broadcast axes; where shapes are known to differ its
  // result has a wrong shape.
  if (x.shape().fully_known() && y.shape().fully_known() && !(x.shape() == y.shape())) {
    const auto [ry, rx] = c.SmartBroadcastArgs();
    gy = Reduce(s, gy, ry);
    gx = Reduce(s, gx, rx);
  }
  c.SetDx(0, gy);
  c.SetDx(1, gx);
  return c.scope().status();
}
absl::Status NextAfterGradient(GradientContext& c) {
  ASSIGN_OR_RETURN(const Output dy, DenseGradient(c));
  const Output x = c.input(0);
  const Output y = c.input(1);
  const auto [rx, ry] = c.BroadcastArgs();
  const Scope s = AfterGradient(c, dy);
  const Output ones = Ones(s, rx.shape, x.base_dtype());
  const Output zeros = Zeros(s, ry.shape, y.base_dtype());
  c.SetDx(0, Reduce(s, Times(s, ones, dy), rx));
  c.SetDx(1, Reduce(s, Times(s, zeros, dy), ry));
  return c.scope().status();
}

// --- Definitions

OpBuilder& BinaryDef(OpBuilder& op, const char* types, const char* doc, GradientFunction gradient) {
  return op.Attr(types)
      .Input("x: T")
      .Input("y: T")
      .Output("z: T")
      .Doc(doc)
      .Shape(BroadcastBinaryShape)
      .Gradient(std::move(gradient));
}

DEFINE_OP(Add) {
  BinaryDef(op,
            "T: {bfloat16, half, float, double, uint8, int8, int16, int32, int64, complex64, "
            "complex128, string}",
            "Sums; strings are joined.", AddGradient)
      .CpuTypes<Join<Join<Floats, Complexes>,
                     Types<uint8_t, int8_t, int16_t, int32_t, int64_t, std::string>>>(
          "T", Binary<Add>("", "Add"));
}
DEFINE_OP(AddV2) {
  BinaryDef(op,
            "T: {bfloat16, half, float, double, uint8, uint16, uint32, uint64, int8, int16, int32, "
            "int64, complex64, "
            "complex128}",
            "Sums.", AddGradient)
      .Commutative()
      .Aggregate()
      .CpuTypes<Numbers>("T", Binary<Add>("", "AddV2"));
}
DEFINE_OP(Sub) {
  BinaryDef(op,
            "T: {bfloat16, half, float, double, uint8, int8, uint16, int16, int32, int64, "
            "complex64, complex128, "
            "uint32, uint64}",
            "Differences.", SubGradient)
      .CpuTypes<Numbers>("T", Binary<Sub>("", "Sub"));
}
DEFINE_OP(Mul) {
  BinaryDef(op, kDivisionTypes, "Products.", MulGradient)
      .Commutative()
      .CpuTypes<Numbers>("T", Binary<Mul>("", "Mul"));
}
DEFINE_OP(MulNoNan) {
  BinaryDef(op, "T: {bfloat16, half, float, double, complex64, complex128}",
            "Products; zero where y is zero, whatever x is.", MulNoNanGradient)
      .CpuTypes<Fields>("T", Binary<MulNoNan>());
}
DEFINE_OP(Div) {
  BinaryDef(op, kDivisionTypes, "Quotients; integers are rounded towards zero.", DivGradient)
      .CpuTypes<Fields>("T", Binary<Divide>())
      .CpuTypes<Integers>("T", Binary<TruncateDivInteger>(kDivisionByZero));
}
DEFINE_OP(RealDiv) {
  BinaryDef(op, kDivisionTypes, "Quotients of real or complex numbers.", RealDivGradient)
      .CpuTypes<Fields>("T", Binary<Divide>("", "RealDiv"));
}
DEFINE_OP(DivNoNan) {
  BinaryDef(op, "T: {half, float, bfloat16, double, complex64, complex128}",
            "Quotients; zero where y is zero.", DivNoNanGradient)
      .CpuTypes<Fields>("T", Binary<DivNoNan>());
}
DEFINE_OP(TruncateDiv) {
  BinaryDef(op, kDivisionTypes, "Quotients rounded towards zero.", NoneGradient)
      .CpuTypes<Types<float, double>>("T", Binary<TruncateDivReal>())
      .CpuTypes<Types<Half, Bfloat16>>("T", []<typename T>() { return CutQuotient<Truncate, T>(); })
      .CpuTypes<Integers>("T", Binary<TruncateDivInteger>(kDivisionByZero));
}
DEFINE_OP(FloorDiv) {
  BinaryDef(op, kDivisionTypes, "Quotients rounded downwards.", NoneGradient)
      .CpuTypes<Types<float, double>>("T", Binary<FloorDivReal>())
      .CpuTypes<Types<Half, Bfloat16>>("T", []<typename T>() { return CutQuotient<Floor, T>(); })
      .CpuTypes<Integers>("T", Binary<FloorDivInteger>(kDivisionByZero));
}
DEFINE_OP(FloorMod) {
  BinaryDef(op,
            "T: {int8, int16, int32, int64, uint8, uint16, uint32, uint64, bfloat16, half, float, "
            "double}",
            "Remainders with the sign of the divisor.", FloorModGradient)
      .CpuTypes<Floats>("T", Binary<FloorModReal>())
      .CpuTypes<Integers>("T", Binary<FloorModInteger>(kDivisionByZero));
}
DEFINE_OP(Mod) {
  op.Attr("T: {int32, int64, half, half, bfloat16, float, double}")
      .Input("x: T")
      .Input("y: T")
      .Output("z: T");
  op.Doc("Remainders with the sign of the dividend.")
      .Shape(BroadcastBinaryShape)
      .CpuTypes<Floats>("T", Binary<TruncateModReal>())
      .CpuTypes<Indices>("T", Binary<TruncateModInteger>(kDivisionByZero));
}
DEFINE_OP(TruncateMod) {
  op.Attr("T: {int32, int64, bfloat16, half, float, double}")
      .Input("x: T")
      .Input("y: T")
      .Output("z: T");
  op.Doc("Remainders with the sign of the dividend.")
      .Shape(BroadcastBinaryShape)
      .CpuTypes<Floats>("T", Binary<TruncateModReal>())
      .CpuTypes<Indices>("T", Binary<TruncateModInteger>(kDivisionByZero));
}
DEFINE_OP(Pow) {
  BinaryDef(op,
            "T: {bfloat16, float, half, double, int8, int16, int32, int64, complex64, complex128}",
            "x to the power of y.", PowGradient)
      .CpuTypes<Fields>("T", Binary<PowField>())
      .CpuTypes<SignedIntegers>("T", Binary<PowInteger>(kNegativePower));
}
DEFINE_OP(Maximum) {
  BinaryDef(op,
            "T: {bfloat16, half, float, double, int8, uint8, int16, uint16, int32, uint32, int64, "
            "uint64}",
            "The greater of two values.", MaximumGradient)
      .CpuTypes<Reals>("T", Binary<Maximum>());
}
DEFINE_OP(Minimum) {
  BinaryDef(op,
            "T: {bfloat16, half, float, double, int8, uint8, int16, uint16, int32, uint32, int64, "
            "uint64}",
            "The smaller of two values.", MinimumGradient)
      .CpuTypes<Reals>("T", Binary<Minimum>());
}
DEFINE_OP(SquaredDifference) {
  BinaryDef(op, "T: {bfloat16, half, float, double, int32, int64, complex64, complex128}",
            "(x - y)^2.", SquaredDifferenceGradient)
      .Commutative()
      .CpuTypes<Join<Fields, Indices>>("T", Binary<SquaredDifference>());
}
DEFINE_OP(Xdivy) {
  BinaryDef(op, "T: {half, bfloat16, float, double, complex64, complex128}",
            "x / y, zero where x is zero.", XdivyGradient)
      .CpuTypes<Fields>("T", Binary<Xdivy>());
}
DEFINE_OP(Xlogy) {
  BinaryDef(op, "T: {half, bfloat16, float, double, complex64, complex128}",
            "x * log(y), zero where x is zero.", XlogyGradient)
      .CpuTypes<Fields>("T", Binary<Xlogy>());
}
DEFINE_OP(Xlog1py) {
  BinaryDef(op, "T: {half, bfloat16, float, double, complex64, complex128}",
            "x * log(1 + y), zero where x is zero.", Xlog1pyGradient)
      .CpuTypes<Fields>("T", Binary<Xlog1py>());
}
DEFINE_OP(Atan2) {
  op.Attr("T: {bfloat16, half, float, double}").Input("y: T").Input("x: T").Output("z: T");
  op.Doc("Angles of the points (x, y).")
      .Shape(BroadcastBinaryShape)
      .Gradient(Atan2Gradient)
      .CpuTypes<Floats>("T", Binary<Atan2>());
}
DEFINE_OP(NextAfter) {
  op.Attr("T: {double, float} = DT_FLOAT").Input("x1: T").Input("x2: T").Output("output: T");
  op.Doc("The number next to x1 in the direction of x2.")
      .Shape(BroadcastBinaryShape)
      .Gradient(NextAfterGradient)
      .CpuTypes<Types<float, double>>("T", Binary<NextAfter>());
}

}  // namespace
}  // namespace muster
