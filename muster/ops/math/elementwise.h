// Element-wise kernels. An op gives a scalar function; here it becomes a tight loop per element
// type, and everything else (broadcasting, threads, 16-bit floats, reuse of memory) is compiled
// once, over untyped memory.
//
//   struct Square {
//     static constexpr bool kWraps = true;    // integers: compute in unsigned, one loop per width
//     static constexpr double kCost = 0.3;    // nanoseconds per element, roughly
//     template <typename T> static T Apply(T x) { return x * x; }
//   };
//   op.CpuTypes<Numbers>("T", Unary<Square>());
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"

#include "muster/ops/op.h"

namespace muster {

// --- Broadcasting
// ----------------------------------------------------------------------------------------------------

inline constexpr int kMaxBroadcastOperands = 3;
using BroadcastOffsets = std::array<int64_t, kMaxBroadcastOperands>;

// How operands of different shapes run along an output: rows of `inner` elements, in which each
// operand either advances with the output or stands still. Neighbouring dims that behave alike are
// merged.
class BroadcastPlan {
 public:
  // InvalidArgument "Incompatible shapes: [2] vs. [3]".
  static absl::StatusOr<BroadcastPlan> Make(absl::Span<const Shape* const> operands);

  const Shape& output() const { return output_; }
  int64_t inner() const { return inner_; }
  int64_t rows() const { return rows_; }
  bool steps(int operand) const { return steps_[operand]; }
  // Calls `body(output offset, operand offsets)` for rows [begin, end); offsets count elements.
  void ForEachRow(int64_t begin, int64_t end,
                  absl::FunctionRef<void(int64_t, const BroadcastOffsets&)> body) const;

  struct Dim {
    int64_t size;
    BroadcastOffsets strides;
  };
  // Dims that the rows run over, outermost first.
  absl::Span<const Dim> outer() const { return outer_; }

 private:
  Shape output_;
  absl::InlinedVector<Dim, 4> outer_;  // outermost first, without the inner one
  int64_t inner_ = 1;
  int64_t rows_ = 1;
  std::array<bool, kMaxBroadcastOperands> steps_ = {};
};

// The broadcast of two shapes, or the error above.
absl::StatusOr<Shape> BroadcastShape(const Shape& x, const Shape& y);
// How an op of two operands runs over them. Without broadcasting they must have equally many
// elements, and the result has the shape of x.
absl::StatusOr<BroadcastPlan> PlanBinary(const Shape& x, const Shape& y, bool broadcasts);

// --- Loops
// -----------------------------------------------------------------------------------------------------------

// Loops over `count` elements; false when the function failed for some element. Operands that do
// not step are read at their first element only.
using UnaryLoop = bool (*)(const void* x, void* y, int64_t count);
using BinaryLoop = bool (*)(const void* x, bool x_steps, const void* y, bool y_steps, void* z,
                            int64_t count);

struct UnarySpec {
  UnaryLoop loop = nullptr;
  DType in = DType::kInvalid;   // of the node; for Half and Bfloat16 the loop is that of float
  DType out = DType::kInvalid;  // likewise
  double cost_ns = 1;
};

struct BinarySpec {
  BinaryLoop loop = nullptr;
  DType in = DType::kInvalid;
  DType out = DType::kInvalid;
  double cost_ns = 1;
  const char* error = "";  // InvalidArgument when the loop fails
  bool broadcasts = true;  // false: operands must have equally many elements
  // For 16-bit floats only: applied after the result has been rounded (FloorDiv cuts the rounded
  // quotient).
  UnaryLoop after_rounding = nullptr;
  // Another op's, applied to the result in its place. Not for 16-bit floats.
  UnaryLoop then = nullptr;
};

KernelFactory ElementwiseKernel(UnarySpec spec);
KernelFactory ElementwiseKernel(BinarySpec spec);
// Equal and NotEqual: shapes that do not fit give the scalar `mismatch` when
// incompatible_shape_error is false.
KernelFactory ComparisonKernel(BinarySpec spec, bool mismatch);

// Runs a spec; kernels with extra rules call these directly.
absl::Status RunUnary(KernelContext& c, const UnarySpec& spec);
absl::Status RunBinary(KernelContext& c, const BinarySpec& spec);

// Loops by the name of their op and node type, for ops that are made of others. Filled while ops
// are defined.
void RememberUnaryLoop(const std::string& op, const UnarySpec& spec);
const UnarySpec* FindUnaryLoop(const std::string& op, DType dtype);
void RememberBinaryLoop(const std::string& op, const BinarySpec& spec);
const BinarySpec* FindBinaryLoop(const std::string& op, DType dtype);

// Conversions of whole blocks; `dtype` is kHalf or kBfloat16.
void ToFloat(DType dtype, const void* from, float* to, int64_t count);
void FromFloat(DType dtype, const float* from, void* to, int64_t count);
constexpr bool IsSmallFloat(DType dtype) {
  return dtype == DType::kHalf || dtype == DType::kBfloat16;
}

namespace elementwise {

template <typename F>
constexpr bool Wraps() {
  if constexpr (requires { F::kWraps; }) return F::kWraps;
  return false;
}

template <typename T, bool wraps>
struct LoopTypeOf {
  using type = Compute<T>;
};
template <typename T>
requires(std::is_integral_v<T> && !std::is_same_v<T, bool>) struct LoopTypeOf<T, true> {
  using type = std::make_unsigned_t<T>;
};
// The type that F's loop for elements T works on.
template <typename F, typename T>
using LoopType = typename LoopTypeOf<T, Wraps<F>()>::type;

// Iterations are independent even when the result overwrites an operand: each element is read
// before it is written.
template <typename F, typename T>
bool RunUnaryLoop(const void* x_memory, void* y_memory, int64_t count) {
  using R = decltype(F::Apply(std::declval<T>()));
  const T* x = static_cast<const T*>(x_memory);
  R* y = static_cast<R*>(y_memory);
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) y[i] = F::Apply(x[i]);
  return true;
}

template <typename F, typename T>
concept Fallible = requires(const T& a, bool& ok) {
  F::Apply(a, a, ok);
};

template <typename F, typename T>
bool RunBinaryLoop(const void* x_memory, bool x_steps, const void* y_memory, bool y_steps,
                   void* z_memory, int64_t count) {
  const T* x = static_cast<const T*>(x_memory);
  const T* y = static_cast<const T*>(y_memory);
  if constexpr (Fallible<F, T>) {
    T* z = static_cast<T*>(z_memory);
    bool ok = true;
    const int64_t x_step = x_steps ? 1 : 0;
    const int64_t y_step = y_steps ? 1 : 0;
    for (int64_t i = 0; i < count; ++i) z[i] = F::Apply(x[i * x_step], y[i * y_step], ok);
    return ok;
  } else {
    using R = decltype(F::Apply(std::declval<const T&>(), std::declval<const T&>()));
    R* z = static_cast<R*>(z_memory);
    if (x_steps && y_steps) {
#pragma GCC ivdep
      for (int64_t i = 0; i < count; ++i) z[i] = F::Apply(x[i], y[i]);
    } else if (x_steps) {
      const T b = *y;
#pragma GCC ivdep
      for (int64_t i = 0; i < count; ++i) z[i] = F::Apply(x[i], b);
    } else {
      const T a = *x;
#pragma GCC ivdep
      for (int64_t i = 0; i < count; ++i) z[i] = F::Apply(a, y[i]);
    }
    return true;
  }
}

// The node's output type for elements T when the loop gives R.
template <typename T, typename L, typename R>
constexpr DType ResultType() {
  return std::is_same_v<L, R> ? kDTypeOf<T> : kDTypeOf<R>;
}

}  // namespace elementwise

template <typename F, typename T>
UnarySpec UnarySpecOf() {
  using L = elementwise::LoopType<F, T>;
  using R = decltype(F::Apply(std::declval<L>()));
  return {elementwise::RunUnaryLoop<F, L>, kDTypeOf<T>, elementwise::ResultType<T, L, R>(),
          F::kCost};
}

template <typename F, typename T>
BinarySpec BinarySpecOf(const char* error = "", bool broadcasts = true) {
  using L = elementwise::LoopType<F, T>;
  DType out = kDTypeOf<T>;
  if constexpr (!elementwise::Fallible<F, L>) {
    out = elementwise::ResultType<
        T, L, decltype(F::Apply(std::declval<const L&>(), std::declval<const L&>()))>();
  }
  return {elementwise::RunBinaryLoop<F, L>, kDTypeOf<T>, out, F::kCost, error, broadcasts};
}

// For OpBuilder::CpuTypes: the factory for each element type.
template <typename F>
auto Unary(const char* remember_as = nullptr) {
  return [remember_as]<typename T>() {
    const UnarySpec spec = UnarySpecOf<F, T>();
    if (remember_as != nullptr) RememberUnaryLoop(remember_as, spec);
    return ElementwiseKernel(spec);
  };
}
template <typename F>
auto Binary(const char* error = "", const char* remember_as = nullptr) {
  return [error, remember_as]<typename T>() {
    const BinarySpec spec = BinarySpecOf<F, T>(error);
    if (remember_as != nullptr) RememberBinaryLoop(remember_as, spec);
    return ElementwiseKernel(spec);
  };
}
// Two operands that must have the same number of elements: the ...Grad ops.
template <typename F>
auto SameSizeBinary() {
  return []<typename T>() { return ElementwiseKernel(BinarySpecOf<F, T>("", false)); };
}

}  // namespace muster
