#include "muster/checkpoint/table/coding.h"

#include <limits>

namespace muster {
namespace {

template <typename T>
void AppendLittleEndian(std::string& out, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) out.push_back(static_cast<char>(value >> (8 * i)));
}

template <typename T>
T DecodeLittleEndian(const char* p) {
  T value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) {
    value |= static_cast<T>(static_cast<unsigned char>(p[i])) << (8 * i);
  }
  return value;
}

}  // namespace

void AppendFixed32(std::string& out, uint32_t value) {
  AppendLittleEndian(out, value);
}

void AppendFixed64(std::string& out, uint64_t value) {
  AppendLittleEndian(out, value);
}

void AppendVarint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

uint32_t DecodeFixed32(const char* p) {
  return DecodeLittleEndian<uint32_t>(p);
}

uint64_t DecodeFixed64(const char* p) {
  return DecodeLittleEndian<uint64_t>(p);
}

std::optional<uint64_t> TakeVarint64(absl::string_view& in) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    if (in.empty()) return std::nullopt;
    const auto byte = static_cast<unsigned char>(in.front());
    in.remove_prefix(1);
    if (shift == 63 && byte > 1) return std::nullopt;
    value |= uint64_t{byte & 0x7fu} << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

std::optional<uint32_t> TakeVarint32(absl::string_view& in) {
  const std::optional<uint64_t> value = TakeVarint64(in);
  if (!value || *value > std::numeric_limits<uint32_t>::max()) return std::nullopt;
  return static_cast<uint32_t>(*value);
}

std::optional<absl::string_view> TakeBytes(absl::string_view& in, uint64_t length) {
  if (length > in.size()) return std::nullopt;
  const absl::string_view taken = in.substr(0, length);
  in.remove_prefix(length);
  return taken;
}

}  // namespace muster
