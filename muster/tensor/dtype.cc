#include "muster/tensor/dtype.h"

#include <array>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

#include "muster/base/status.h"
#include "muster/tensor/handles.h"

namespace muster {
namespace {

struct Row {
  const char* name;
  size_t size;
};

constexpr std::array<Row, kDTypeCount> kRows = {{
    {"INVALID", 0},
    {"float", 4},
    {"double", 8},
    {"int32", 4},
    {"uint8", 1},
    {"int16", 2},
    {"int8", 1},
    {"string", sizeof(std::string)},
    {"complex64", 8},
    {"int64", 8},
    {"bool", 1},
    {"qint8", 1},
    {"quint8", 1},
    {"qint32", 4},
    {"bfloat16", 2},
    {"qint16", 2},
    {"quint16", 2},
    {"uint16", 2},
    {"complex128", 16},
    {"half", 2},
    {"resource", sizeof(ResourceHandle)},
    {"variant", sizeof(Variant)},
    {"uint32", 4},
    {"uint64", 8},
    {"float8_e5m2", 1},
    {"float8_e4m3fn", 1},
    {"float8_e4m3fnuz", 1},
    {"float8_e4m3b11fnuz", 1},
    {"float8_e5m2fnuz", 1},
    {"int4", 1},
    {"uint4", 1},
    {"int2", 1},
    {"uint2", 1},
    {"float4_e2m1fn", 1},
}};

uint16_t FloatToHalfBits(float value) {
  const uint32_t word = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (word >> 16) & 0x8000;
  const uint32_t magnitude = word & 0x7FFFFFFF;
  if (magnitude >= 0x7F800000) {  // Inf, NaN
    return static_cast<uint16_t>(
        sign | 0x7C00 | (magnitude > 0x7F800000 ? 0x200 | ((magnitude >> 13) & 0x3FF) : 0));
  }
  if (magnitude >= 0x477FF000) return static_cast<uint16_t>(sign | 0x7C00);  // rounds to Inf
  if (magnitude < 0x38800000) {                                              // subnormal or zero
    if (magnitude < 0x33000000) return static_cast<uint16_t>(sign);
    const int shift = 126 - static_cast<int>(magnitude >> 23);
    const uint32_t mantissa = (magnitude & 0x7FFFFF) | 0x800000;
    const uint32_t kept = mantissa >> shift;
    const uint32_t rest = mantissa & ((1u << shift) - 1);
    const uint32_t half = 1u << (shift - 1);
    return static_cast<uint16_t>(sign | (kept + (rest > half || (rest == half && (kept & 1)))));
  }
  const uint32_t rounded = magnitude + 0xFFF + ((magnitude >> 13) & 1);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000) >> 13));
}

float HalfBitsToFloat(uint16_t bits) {
  const uint32_t sign = uint32_t{bits & 0x8000u} << 16;
  const uint32_t exponent = (bits >> 10) & 0x1F;
  uint32_t mantissa = bits & 0x3FF;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000 | (mantissa << 13));
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

}  // namespace

Half::Half(float value) : bits(FloatToHalfBits(value)) {}
Half::operator float() const {
  return HalfBitsToFloat(bits);
}

bool IsValidDType(int number) {
  if (number > 100) number -= 100;
  return number > 0 && number < kDTypeCount;
}

size_t DTypeSize(DType dtype) {
  const int number = static_cast<int>(BaseType(dtype));
  return number >= 0 && number < kDTypeCount ? kRows[number].size : 0;
}

std::string DTypeName(DType dtype) {
  const int number = static_cast<int>(BaseType(dtype));
  if (number < 0 || number >= kDTypeCount) return absl::StrCat("type_", static_cast<int>(dtype));
  return absl::StrCat(kRows[number].name, IsRef(dtype) ? "_ref" : "");
}

absl::StatusOr<DType> DTypeFromName(absl::string_view name) {
  const absl::string_view given = name;
  const bool is_ref = absl::ConsumeSuffix(&name, "_ref");
  if (name == "float32") name = "float";
  if (name == "float64") name = "double";
  if (name == "float16") name = "half";
  for (int i = 1; i < kDTypeCount; ++i) {
    if (name == kRows[i].name)
      return is_ref ? RefType(static_cast<DType>(i)) : static_cast<DType>(i);
  }
  return InvalidArgument("'", given, "' is not the name of a data type");
}

bool IsFloating(DType dtype) {
  return dtype == DType::kFloat || dtype == DType::kDouble || dtype == DType::kHalf ||
         dtype == DType::kBfloat16;
}
bool IsComplex(DType dtype) {
  return dtype == DType::kComplex64 || dtype == DType::kComplex128;
}
bool IsInteger(DType dtype) {
  switch (dtype) {
    case DType::kInt8:
    case DType::kInt16:
    case DType::kInt32:
    case DType::kInt64:
    case DType::kUint8:
    case DType::kUint16:
    case DType::kUint32:
    case DType::kUint64:
      return true;
    default:
      return false;
  }
}

}  // namespace muster
