#include "muster/checkpoint/snappy.h"

#include <algorithm>

#include "muster/checkpoint/coding.h"

namespace muster {
namespace {

std::optional<uint32_t> TakeLittleEndian(absl::string_view& in, size_t bytes) {
  const std::optional<absl::string_view> taken = TakeBytes(in, bytes);
  if (!taken) return std::nullopt;
  uint32_t value = 0;
  for (size_t i = 0; i < bytes; ++i) {
    value |= uint32_t{static_cast<unsigned char>((*taken)[i])} << (8 * i);
  }
  return value;
}

bool AppendLiteral(uint32_t tag, absl::string_view& in, size_t length, std::string& out) {
  uint64_t count = (tag >> 2) + 1;
  if (count > 60) {
    const std::optional<uint32_t> stored = TakeLittleEndian(in, count - 60);
    if (!stored) return false;
    count = uint64_t{*stored} + 1;
  }
  const std::optional<absl::string_view> literal = TakeBytes(in, count);
  if (!literal || count > length - out.size()) return false;
  out.append(literal->data(), literal->size());
  return true;
}

bool AppendCopy(uint32_t tag, absl::string_view& in, size_t length, std::string& out) {
  const uint32_t kind = tag & 3;
  const std::optional<uint32_t> stored = TakeLittleEndian(in, kind == 3 ? 4 : kind);
  if (!stored) return false;
  const size_t count = kind == 1 ? ((tag >> 2) & 7) + 4 : (tag >> 2) + 1;
  const size_t offset = kind == 1 ? ((tag >> 5) << 8 | *stored) : *stored;
  if (offset == 0 || offset > out.size() || count > length - out.size()) return false;
  // May overlap what it appends: byte by byte.
  for (size_t i = 0; i < count; ++i) out.push_back(out[out.size() - offset]);
  return true;
}

}  // namespace

std::optional<std::string> UncompressSnappy(absl::string_view compressed, size_t max_length) {
  const std::optional<uint32_t> length = TakeVarint32(compressed);
  if (!length || *length > max_length) return std::nullopt;
  std::string out;
  // The densest encoding makes 64 bytes of 3: no more is reserved than the input can give.
  out.reserve(std::min<uint64_t>(*length, uint64_t{compressed.size()} * 22 + 64));
  while (!compressed.empty()) {
    const auto tag = static_cast<unsigned char>(compressed.front());
    compressed.remove_prefix(1);
    const bool fine = (tag & 3) == 0 ? AppendLiteral(tag, compressed, *length, out)
                                     : AppendCopy(tag, compressed, *length, out);
    if (!fine) return std::nullopt;
  }
  if (out.size() != *length) return std::nullopt;
  return out;
}

}  // namespace muster
