#include "muster/checkpoint/table/snappy.h"

#include <snappy.h>

namespace muster {

std::optional<std::string> UncompressSnappy(absl::string_view compressed, size_t max_length) {
  size_t length = 0;
  if (!snappy::GetUncompressedLength(compressed.data(), compressed.size(), &length))
    return std::nullopt;
  // The densest encoding makes 64 bytes of 3: no memory for more than the input can give.
  if (length > max_length || length > compressed.size() * 22 + 64) return std::nullopt;
  std::string text(length, '\0');
  if (!snappy::RawUncompress(compressed.data(), compressed.size(), text.data()))
    return std::nullopt;
  return text;
}

}  // namespace muster
