// Quotients and remainders, with broadcasting.
#include <cmath>

#include "muster/ops/math/binary_op.h"
#include "muster/ops/math/elementwise.h"
#include "muster/ops/math/elementwise_gpu.h"
#include "muster/ops/math/gradient_helpers.h"

namespace muster {
namespace {

constexpr const char* kDivisionByZero = "Integer division by zero";
const std::vector<DType> kGpuDivided = {DType::kUint8, DType::kUint16, DType::kInt16,
                                        DType::kInt64};

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

DEFINE_OP(Div) {
  BinaryDef(op, kArithmeticTypes, "Quotients; integers are rounded towards zero.", DivGradient)
      .CpuTypes<Fields>("T", Binary<Divide>())
      .CpuTypes<Integers>("T", Binary<TruncateDivInteger>(kDivisionByZero))
      .GpuTypes("T", With(kGpuFields, kGpuDivided), BinaryOnGpu("Divide"))
      .GpuOnHost("T");
}
DEFINE_OP(RealDiv) {
  BinaryDef(op, kArithmeticTypes, "Quotients of real or complex numbers.", RealDivGradient)
      .CpuTypes<Fields>("T", Binary<Divide>("", "RealDiv"))
      .GpuTypes("T", kGpuFields, BinaryOnGpu("Divide"));
}
DEFINE_OP(DivNoNan) {
  BinaryDef(op, "T: {half, float, bfloat16, double, complex64, complex128}",
            "Quotients; zero where y is zero.", DivNoNanGradient)
      .CpuTypes<Fields>("T", Binary<DivNoNan>())
      .GpuTypes("T", kGpuFields, BinaryOnGpu("DivNoNan"));
}
DEFINE_OP(TruncateDiv) {
  BinaryDef(op, kArithmeticTypes, "Quotients rounded towards zero.", NoneGradient)
      .CpuTypes<Types<float, double>>("T", Binary<TruncateDivReal>())
      .CpuTypes<Types<Half, Bfloat16>>("T", []<typename T>() { return CutQuotient<Truncate, T>(); })
      .CpuTypes<Integers>("T", Binary<TruncateDivInteger>(kDivisionByZero))
      .GpuTypes("T", kGpuDivided, BinaryOnGpu("Divide"));
}
DEFINE_OP(FloorDiv) {
  BinaryDef(op, kArithmeticTypes, "Quotients rounded downwards.", NoneGradient)
      .CpuTypes<Types<float, double>>("T", Binary<FloorDivReal>())
      .CpuTypes<Types<Half, Bfloat16>>("T", []<typename T>() { return CutQuotient<Floor, T>(); })
      .CpuTypes<Integers>("T", Binary<FloorDivInteger>(kDivisionByZero))
      .GpuTypes("T", With(kGpuPreciseFloats, kGpuDivided), BinaryOnGpu("FloorDiv"))
      .GpuTypes("T", {DType::kHalf}, BinaryOnGpu("RoundedFloorDiv<Half>"))
      .GpuTypes("T", {DType::kBfloat16}, BinaryOnGpu("RoundedFloorDiv<Bfloat16>"))
      .GpuOnHost("T");
}
DEFINE_OP(FloorMod) {
  BinaryDef(op,
            "T: {int8, int16, int32, int64, uint8, uint16, uint32, uint64, bfloat16, half, float, "
            "double}",
            "Remainders with the sign of the divisor.", FloorModGradient)
      .CpuTypes<Floats>("T", Binary<FloorModReal>())
      .CpuTypes<Integers>("T", Binary<FloorModInteger>(kDivisionByZero))
      .GpuOnHost("T");
}
DEFINE_OP(Mod) {
  op.Attr("T: {int32, int64, half, half, bfloat16, float, double}")
      .Input("x: T")
      .Input("y: T")
      .Output("z: T");
  op.Doc("Remainders with the sign of the dividend.")
      .Shape(BroadcastBinaryShape)
      .CpuTypes<Floats>("T", Binary<TruncateModReal>())
      .CpuTypes<Indices>("T", Binary<TruncateModInteger>(kDivisionByZero))
      .GpuOnHost("T");
}
DEFINE_OP(TruncateMod) {
  op.Attr("T: {int32, int64, bfloat16, half, float, double}")
      .Input("x: T")
      .Input("y: T")
      .Output("z: T");
  op.Doc("Remainders with the sign of the dividend.")
      .Shape(BroadcastBinaryShape)
      .CpuTypes<Floats>("T", Binary<TruncateModReal>())
      .CpuTypes<Indices>("T", Binary<TruncateModInteger>(kDivisionByZero))
      .GpuOnHost("T");
}

}  // namespace
}  // namespace muster
