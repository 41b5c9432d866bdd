// Text in any encoding as code points, and back.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"

#include "muster/base/status.h"

namespace muster {

inline constexpr int32_t kReplacementCharacter = 0xFFFD;
inline constexpr int32_t kLastCodePoint = 0x10FFFF;
inline bool IsSurrogate(int64_t code_point) {
  return code_point >= 0xD800 && code_point <= 0xDFFF;
}

// What `bytes` bytes of a text stand for.
struct DecodedChar {
  int32_t code_point = kReplacementCharacter;
  int64_t bytes = 1;
  bool bad = true;
};

// Reads one encoding. Thread-safe.
class Charset {
 public:
  virtual ~Charset() = default;
  // Calls `got` for one character after the other.
  virtual void Decode(absl::string_view text, absl::FunctionRef<void(DecodedChar)> got) const = 0;

  // InvalidArgument for an unknown encoding.
  static absl::StatusOr<std::shared_ptr<const Charset>> Find(const std::string& name);
};

enum class OutputEncoding { kUtf8, kUtf16Be, kUtf32Be };
absl::StatusOr<OutputEncoding> FindOutputEncoding(absl::string_view name);
// Numbers that are not code points become the replacement character.
void AppendEncoded(OutputEncoding encoding, int64_t code_point, std::string& to);

}  // namespace muster
