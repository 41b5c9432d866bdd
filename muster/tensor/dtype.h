// Element types: TensorFlow's numbers and names, and the C++ type of each.
#pragma once

#include <bit>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace muster {

enum class DType : int32_t {
  kInvalid = 0,
  kFloat = 1,
  kDouble = 2,
  kInt32 = 3,
  kUint8 = 4,
  kInt16 = 5,
  kInt8 = 6,
  kString = 7,
  kComplex64 = 8,
  kInt64 = 9,
  kBool = 10,
  kQint8 = 11,
  kQuint8 = 12,
  kQint32 = 13,
  kBfloat16 = 14,
  kQint16 = 15,
  kQuint16 = 16,
  kUint16 = 17,
  kComplex128 = 18,
  kHalf = 19,
  kResource = 20,
  kVariant = 21,
  kUint32 = 22,
  kUint64 = 23,
  kFloat8E5m2 = 24,
  kFloat8E4m3fn = 25,
  kFloat8E4m3fnuz = 26,
  kFloat8E4m3b11fnuz = 27,
  kFloat8E5m2fnuz = 28,
  kInt4 = 29,
  kUint4 = 30,
  kInt2 = 31,
  kUint2 = 32,
  kFloat4E2m1fn = 33,
};
inline constexpr int kDTypeCount = 34;

// A reference type is its base type plus 100; it appears on edges and in attributes, never in a
// tensor.
constexpr bool IsRef(DType dtype) {
  return static_cast<int>(dtype) > 100;
}
constexpr DType BaseType(DType dtype) {
  return IsRef(dtype) ? static_cast<DType>(static_cast<int>(dtype) - 100) : dtype;
}
constexpr DType RefType(DType dtype) {
  return static_cast<DType>(static_cast<int>(BaseType(dtype)) + 100);
}

// Bytes per element as held in memory; 0 for an invalid type.
size_t DTypeSize(DType dtype);
// "float", "int32", "string", ...; a reference type ends in "_ref". TensorFlow's DataTypeString.
std::string DTypeName(DType dtype);
// The inverse, which also knows Python's names ("float32", "float16").
absl::StatusOr<DType> DTypeFromName(absl::string_view name);
// True for a base or reference type with one of the numbers above.
bool IsValidDType(int number);

bool IsFloating(DType dtype);  // half, bfloat16, float, double
bool IsComplex(DType dtype);
bool IsInteger(DType dtype);  // signed and unsigned, not quantized, not bool
// Elements are plain bytes that may be copied with memcpy: all but string, resource and variant.
constexpr bool IsPlainData(DType dtype) {
  return dtype != DType::kString && dtype != DType::kResource && dtype != DType::kVariant;
}

// IEEE binary16, stored; arithmetic happens in float.
struct Half {
  uint16_t bits = 0;
  Half() = default;
  explicit Half(float value);
  explicit operator float() const;
  static Half FromBits(uint16_t bits) {
    Half h;
    h.bits = bits;
    return h;
  }
};

// The upper half of a float, rounded to nearest even.
struct Bfloat16 {
  uint16_t bits = 0;
  Bfloat16() = default;
  explicit Bfloat16(float value) {
    const uint32_t word = std::bit_cast<uint32_t>(value);
    bits = (value != value) ? static_cast<uint16_t>((word >> 16) | 0x40)
                            : static_cast<uint16_t>((word + 0x7FFF + ((word >> 16) & 1)) >> 16);
  }
  explicit operator float() const { return std::bit_cast<float>(uint32_t{bits} << 16); }
  static Bfloat16 FromBits(uint16_t bits) {
    Bfloat16 b;
    b.bits = bits;
    return b;
  }
};

using Complex64 = std::complex<float>;
using Complex128 = std::complex<double>;

class ResourceHandle;
class Variant;

// kDTypeOf<float> == DType::kFloat, and so on.
template <typename T>
inline constexpr DType kDTypeOf = DType::kInvalid;
template <>
inline constexpr DType kDTypeOf<float> = DType::kFloat;
template <>
inline constexpr DType kDTypeOf<double> = DType::kDouble;
template <>
inline constexpr DType kDTypeOf<int32_t> = DType::kInt32;
template <>
inline constexpr DType kDTypeOf<uint8_t> = DType::kUint8;
template <>
inline constexpr DType kDTypeOf<int16_t> = DType::kInt16;
template <>
inline constexpr DType kDTypeOf<int8_t> = DType::kInt8;
template <>
inline constexpr DType kDTypeOf<std::string> = DType::kString;
template <>
inline constexpr DType kDTypeOf<Complex64> = DType::kComplex64;
template <>
inline constexpr DType kDTypeOf<int64_t> = DType::kInt64;
template <>
inline constexpr DType kDTypeOf<bool> = DType::kBool;
template <>
inline constexpr DType kDTypeOf<Bfloat16> = DType::kBfloat16;
template <>
inline constexpr DType kDTypeOf<uint16_t> = DType::kUint16;
template <>
inline constexpr DType kDTypeOf<Complex128> = DType::kComplex128;
template <>
inline constexpr DType kDTypeOf<Half> = DType::kHalf;
template <>
inline constexpr DType kDTypeOf<ResourceHandle> = DType::kResource;
template <>
inline constexpr DType kDTypeOf<Variant> = DType::kVariant;
template <>
inline constexpr DType kDTypeOf<uint32_t> = DType::kUint32;
template <>
inline constexpr DType kDTypeOf<uint64_t> = DType::kUint64;

// The type in which arithmetic on T happens: float for the 16-bit floats, T itself otherwise.
template <typename T>
struct ComputeType {
  using type = T;
};
template <>
struct ComputeType<Half> {
  using type = float;
};
template <>
struct ComputeType<Bfloat16> {
  using type = float;
};
template <typename T>
using Compute = typename ComputeType<T>::type;

}  // namespace muster
