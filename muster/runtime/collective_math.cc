#include "muster/runtime/collective_math.h"

#include <type_traits>

namespace muster {
namespace {

// Integers wrap around.
template <typename C>
struct Add {
  C operator()(C a, C b) const {
    if constexpr (std::is_integral_v<C>) {
      using U = std::make_unsigned_t<C>;
      return static_cast<C>(static_cast<U>(a) + static_cast<U>(b));
    } else {
      return a + b;
    }
  }
};
template <typename C>
struct Mul {
  C operator()(C a, C b) const {
    if constexpr (std::is_integral_v<C>) {
      using U = std::make_unsigned_t<C>;
      return static_cast<C>(static_cast<U>(a) * static_cast<U>(b));
    } else {
      return a * b;
    }
  }
};
// Not a number wins, whichever side it is on: all ranks get the same.
template <typename C>
struct Min {
  C operator()(C a, C b) const { return (a < b || a != a) ? a : b; }
};
template <typename C>
struct Max {
  C operator()(C a, C b) const { return (a > b || a != a) ? a : b; }
};

template <typename T, typename Op>
void Merge(const char* from, char* into, int64_t count, Op op) {
  const T* const a = reinterpret_cast<const T*>(from);
  T* const b = reinterpret_cast<T*>(into);
  for (int64_t i = 0; i < count; ++i) {
    b[i] = static_cast<T>(op(static_cast<Compute<T>>(b[i]), static_cast<Compute<T>>(a[i])));
  }
}

template <typename T>
void MergeAs(MergeOp merge, const char* from, char* into, int64_t count) {
  using C = Compute<T>;
  switch (merge) {
    case MergeOp::kAdd:
      return Merge<T>(from, into, count, Add<C>());
    case MergeOp::kMul:
      return Merge<T>(from, into, count, Mul<C>());
    case MergeOp::kMin:
      return Merge<T>(from, into, count, Min<C>());
    case MergeOp::kMax:
      return Merge<T>(from, into, count, Max<C>());
  }
}

template <typename T>
void Divide(char* into, int64_t count, int by) {
  T* const b = reinterpret_cast<T*>(into);
  // As an element of the tensor: TensorFlow makes one of the group's size, too.
  const auto divisor = static_cast<Compute<T>>(static_cast<T>(static_cast<Compute<T>>(by)));
  for (int64_t i = 0; i < count; ++i) {
    b[i] = static_cast<T>(static_cast<Compute<T>>(b[i]) / divisor);
  }
}

// Calls body.operator()<T>() with the type of `dtype`; false when there is none.
template <typename Body>
bool WithType(DType dtype, Body body) {
  switch (dtype) {
    case DType::kHalf:
      body.template operator()<Half>();
      return true;
    case DType::kBfloat16:
      body.template operator()<Bfloat16>();
      return true;
    case DType::kFloat:
      body.template operator()<float>();
      return true;
    case DType::kDouble:
      body.template operator()<double>();
      return true;
    case DType::kInt32:
      body.template operator()<int32_t>();
      return true;
    case DType::kInt64:
      body.template operator()<int64_t>();
      return true;
    default:
      return false;
  }
}

}  // namespace

bool IsReducible(DType dtype) {
  return WithType(dtype, []<typename T>() {});
}

void MergeElements(DType dtype, MergeOp merge, const char* from, char* into, int64_t count) {
  WithType(dtype, [&]<typename T>() { MergeAs<T>(merge, from, into, count); });
}

void DivideElements(DType dtype, char* into, int64_t count, int by) {
  WithType(dtype, [&]<typename T>() { Divide<T>(into, count, by); });
}

}  // namespace muster
