// Sums, differences, products and extrema, with broadcasting.
#include <complex>

#include "muster/ops/math/binary_op.h"
#include "muster/ops/math/elementwise.h"
#include "muster/ops/math/elementwise_gpu.h"
#include "muster/ops/math/gradient_helpers.h"

namespace muster {
namespace {

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

DEFINE_OP(Add) {
  BinaryDef(op,
            "T: {bfloat16, half, float, double, uint8, int8, int16, int32, int64, complex64, "
            "complex128, string}",
            "Sums; strings are joined.", AddGradient)
      .CpuTypes<Join<Join<Floats, Complexes>,
                     Types<uint8_t, int8_t, int16_t, int32_t, int64_t, std::string>>>(
          "T", Binary<Add>("", "Add"))
      .GpuTypes("T", With(kGpuFields, {DType::kUint8, DType::kInt64}), BinaryOnGpu("Add"))
      .GpuOnHost("T");
}
DEFINE_OP(AddV2) {
  BinaryDef(op,
            "T: {bfloat16, half, float, double, uint8, uint16, uint32, uint64, int8, int16, int32, "
            "int64, complex64, "
            "complex128}",
            "Sums.", AddGradient)
      .Commutative()
      .Aggregate()
      .CpuTypes<Numbers>("T", Binary<Add>("", "AddV2"))
      .GpuTypes("T", With(kGpuFields, {DType::kUint8, DType::kInt64}), BinaryOnGpu("Add"))
      .GpuOnHost("T");
}
DEFINE_OP(Sub) {
  BinaryDef(op,
            "T: {bfloat16, half, float, double, uint8, int8, uint16, int16, int32, int64, "
            "complex64, complex128, "
            "uint32, uint64}",
            "Differences.", SubGradient)
      .CpuTypes<Numbers>("T", Binary<Sub>("", "Sub"))
      .GpuTypes("T", With(kGpuFields, {DType::kInt64}), BinaryOnGpu("Sub"))
      .GpuOnHost("T");
}
DEFINE_OP(Mul) {
  BinaryDef(op, kArithmeticTypes, "Products.", MulGradient)
      .Commutative()
      .CpuTypes<Numbers>("T", Binary<Mul>("", "Mul"))
      .GpuTypes("T",
                With(kGpuFields,
                     {DType::kUint8, DType::kUint16, DType::kInt8, DType::kInt16, DType::kInt64}),
                BinaryOnGpu("Mul"))
      .GpuOnHost("T");
}
DEFINE_OP(MulNoNan) {
  BinaryDef(op, "T: {bfloat16, half, float, double, complex64, complex128}",
            "Products; zero where y is zero, whatever x is.", MulNoNanGradient)
      .CpuTypes<Fields>("T", Binary<MulNoNan>())
      .GpuTypes("T", kGpuFields, BinaryOnGpu("MulNoNan"));
}
DEFINE_OP(SquaredDifference) {
  BinaryDef(op, "T: {bfloat16, half, float, double, int32, int64, complex64, complex128}",
            "(x - y)^2.", SquaredDifferenceGradient)
      .Commutative()
      .CpuTypes<Join<Fields, Indices>>("T", Binary<SquaredDifference>())
      .GpuTypes("T", With(kGpuFloats, {DType::kInt64}), BinaryOnGpu("SquaredDifference"))
      .GpuOnHost("T");
}
DEFINE_OP(Maximum) {
  BinaryDef(op,
            "T: {bfloat16, half, float, double, int8, uint8, int16, uint16, int32, uint32, int64, "
            "uint64}",
            "The greater of two values.", MaximumGradient)
      .CpuTypes<Reals>("T", Binary<Maximum>())
      .GpuTypes("T", With(kGpuFloats, {DType::kInt64}), BinaryOnGpu("Maximum"))
      .GpuOnHost("T");
}
DEFINE_OP(Minimum) {
  BinaryDef(op,
            "T: {bfloat16, half, float, double, int8, uint8, int16, uint16, int32, uint32, int64, "
            "uint64}",
            "The smaller of two values.", MinimumGradient)
      .CpuTypes<Reals>("T", Binary<Minimum>())
      .GpuTypes("T", With(kGpuFloats, {DType::kInt64}), BinaryOnGpu("Minimum"))
      .GpuOnHost("T");
}

}  // namespace
}  // namespace muster
