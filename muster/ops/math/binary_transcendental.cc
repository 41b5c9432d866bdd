// Powers, logarithms with a factor, angles and neighbouring numbers, with broadcasting.
#include <cmath>
#include <complex>

#include "muster/ops/math/binary_op.h"
#include "muster/ops/math/elementwise.h"
#include "muster/ops/math/elementwise_gpu.h"
#include "muster/ops/math/gradient_helpers.h"

namespace muster {
namespace {

constexpr const char* kNegativePower = "Integers to negative integer powers are not allowed";

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
// x != 0 as a number, for the ops that treat zero apart.
Output NotZero(const Scope& s, Output x) {
  const NamedOp cast(s, "Cast");
  Output zero = cast.inner().ConstScalar<float>(0, "x");
  if (x.base_dtype() != DType::kFloat) zero = cast.Op("Cast", {zero}, {{"DstT", x.base_dtype()}});
  const Output mask = s.Op("NotEqual", {x, zero});
  return s.Op("Cast", {mask}, {{"DstT", x.base_dtype()}});
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

DEFINE_OP(Pow) {
  BinaryDef(op,
            "T: {bfloat16, float, half, double, int8, int16, int32, int64, complex64, complex128}",
            "x to the power of y.", PowGradient)
      .CpuTypes<Fields>("T", Binary<PowField>())
      .CpuTypes<SignedIntegers>("T", Binary<PowInteger>(kNegativePower))
      .GpuTypes("T", With(kGpuFloats, {DType::kInt64}), BinaryOnGpu("Pow"));
}
DEFINE_OP(Xdivy) {
  BinaryDef(op, "T: {half, bfloat16, float, double, complex64, complex128}",
            "x / y, zero where x is zero.", XdivyGradient)
      .CpuTypes<Fields>("T", Binary<Xdivy>())
      .GpuTypes("T", kGpuFields, BinaryOnGpu("Xdivy"));
}
DEFINE_OP(Xlogy) {
  BinaryDef(op, "T: {half, bfloat16, float, double, complex64, complex128}",
            "x * log(y), zero where x is zero.", XlogyGradient)
      .CpuTypes<Fields>("T", Binary<Xlogy>())
      .GpuTypes("T", kGpuFields, BinaryOnGpu("Xlogy"));
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
      .CpuTypes<Floats>("T", Binary<Atan2>())
      .GpuTypes("T", kGpuPreciseFloats, BinaryOnGpu("Atan2"));
}
DEFINE_OP(NextAfter) {
  op.Attr("T: {double, float} = DT_FLOAT").Input("x1: T").Input("x2: T").Output("output: T");
  op.Doc("The number next to x1 in the direction of x2.")
      .Shape(BroadcastBinaryShape)
      .Gradient(NextAfterGradient)
      .CpuTypes<Types<float, double>>("T", Binary<NextAfter>())
      .GpuTypes("T", kGpuPreciseFloats, BinaryOnGpu("NextAfter"));
}

}  // namespace
}  // namespace muster
