#include "muster/collective/reduce.h"

#include <cstring>
#include <type_traits>

namespace muster::collective {
namespace {

// Bytes from the network may be unaligned; the compiler turns these into unaligned vector loads.
template <typename T>
T Load(const void* base, size_t index) {
  T value;
  std::memcpy(&value, static_cast<const char*>(base) + index * sizeof(T), sizeof(T));
  return value;
}

template <typename T>
void Store(void* base, size_t index, T value) {
  std::memcpy(static_cast<char*>(base) + index * sizeof(T), &value, sizeof(T));
}

// Integers wrap around: sums and products happen without a sign.
template <typename T, bool = std::is_integral_v<T>>
struct Arithmetic {
  using type = Compute<T>;
};
template <typename T>
struct Arithmetic<T, true> {
  using type = std::conditional_t<(sizeof(T) < 4), uint32_t, std::make_unsigned_t<T>>;
};

struct Add {
  template <typename T>
  static T Apply(T a, T b) {
    using U = typename Arithmetic<T>::type;
    return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
  }
};
struct Mul {
  template <typename T>
  static T Apply(T a, T b) {
    using U = typename Arithmetic<T>::type;
    return static_cast<T>(static_cast<U>(a) * static_cast<U>(b));
  }
  template <typename T>
  static std::complex<T> Apply(std::complex<T> a, std::complex<T> b) {
    return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
  }
};
// A NaN wins: otherwise the result would depend on the order of the ranks.
struct Min {
  template <typename T>
  static T Apply(T a, T b) {
    const auto x = static_cast<Compute<T>>(a), y = static_cast<Compute<T>>(b);
    return (x < y || x != x) ? a : b;
  }
};
struct Max {
  template <typename T>
  static T Apply(T a, T b) {
    const auto x = static_cast<Compute<T>>(a), y = static_cast<Compute<T>>(b);
    return (x > y || x != x) ? a : b;
  }
};

template <typename T, typename Op>
void Combine(void* out, const void* a, const void* b, size_t count) {
#pragma GCC ivdep
  for (size_t i = 0; i < count; ++i) Store<T>(out, i, Op::Apply(Load<T>(a, i), Load<T>(b, i)));
}

template <typename T>
void Divide(void* data, size_t count, int64_t divisor) {
  if constexpr (std::is_integral_v<T>) {
    // A group may have more ranks than an int8 can count.
    for (size_t i = 0; i < count; ++i) {
      if constexpr (std::is_same_v<T, uint64_t>) {
        Store<T>(data, i, Load<T>(data, i) / static_cast<uint64_t>(divisor));
      } else {
        Store<T>(data, i, static_cast<T>(static_cast<int64_t>(Load<T>(data, i)) / divisor));
      }
    }
  } else if constexpr (std::is_same_v<T, Complex64> || std::is_same_v<T, Complex128>) {
    const auto by = static_cast<typename T::value_type>(divisor);
    for (size_t i = 0; i < count; ++i) {
      const T value = Load<T>(data, i);
      Store<T>(data, i, T(value.real() / by, value.imag() / by));
    }
  } else {
    const auto by = static_cast<Compute<T>>(static_cast<T>(static_cast<Compute<T>>(divisor)));
#pragma GCC ivdep
    for (size_t i = 0; i < count; ++i) {
      Store<T>(data, i, static_cast<T>(static_cast<Compute<T>>(Load<T>(data, i)) / by));
    }
  }
}

template <typename T>
absl::StatusOr<ReduceKernel> KernelFor(const Reduction& reduction) {
  ReduceKernel kernel{.divide = &Divide<T>, .element_bytes = sizeof(T)};
  switch (reduction.op) {
    case MergeOp::kAdd:
      kernel.combine = &Combine<T, Add>;
      return kernel;
    case MergeOp::kMul:
      kernel.combine = &Combine<T, Mul>;
      return kernel;
    case MergeOp::kMin:
    case MergeOp::kMax:
      if constexpr (std::is_same_v<T, Complex64> || std::is_same_v<T, Complex128>) {
        return InvalidArgument("Min and Max of ", DTypeName(reduction.dtype),
                               ": complex numbers have no order");
      } else {
        kernel.combine = reduction.op == MergeOp::kMin ? &Combine<T, Min> : &Combine<T, Max>;
        return kernel;
      }
  }
  return InvalidArgument("Reduction number ", static_cast<int>(reduction.op), " is unknown");
}

}  // namespace

absl::StatusOr<ReduceKernel> FindReduceKernel(const Reduction& reduction) {
  switch (reduction.dtype) {
    case DType::kFloat:
      return KernelFor<float>(reduction);
    case DType::kDouble:
      return KernelFor<double>(reduction);
    case DType::kHalf:
      return KernelFor<Half>(reduction);
    case DType::kBfloat16:
      return KernelFor<Bfloat16>(reduction);
    case DType::kInt8:
      return KernelFor<int8_t>(reduction);
    case DType::kInt16:
      return KernelFor<int16_t>(reduction);
    case DType::kInt32:
      return KernelFor<int32_t>(reduction);
    case DType::kInt64:
      return KernelFor<int64_t>(reduction);
    case DType::kUint8:
      return KernelFor<uint8_t>(reduction);
    case DType::kUint16:
      return KernelFor<uint16_t>(reduction);
    case DType::kUint32:
      return KernelFor<uint32_t>(reduction);
    case DType::kUint64:
      return KernelFor<uint64_t>(reduction);
    case DType::kComplex64:
      return KernelFor<Complex64>(reduction);
    case DType::kComplex128:
      return KernelFor<Complex128>(reduction);
    default:
      return InvalidArgument("Cannot reduce elements of type ", DTypeName(reduction.dtype));
  }
}

}  // namespace muster::collective
