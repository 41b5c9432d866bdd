// What readers and writers of TFRecord files share. A file is a sequence of records, each
//   u64 length | u32 masked CRC-32C of the length | payload | u32 masked CRC-32C of the payload
// (little endian), and as a whole may be one zlib or gzip stream.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace muster {

inline constexpr size_t kRecordHeaderBytes = 12;
inline constexpr size_t kRecordTrailerBytes = 4;

static_assert(std::endian::native == std::endian::little, "numbers are copied as they are");
template <typename T>
T LoadLittle(const char* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}
template <typename T>
void StoreLittle(char* to, T value) {
  std::memcpy(to, &value, sizeof(value));
}

enum class RecordCompression { kNone, kZlib, kGzip };

// "", "ZLIB" or "GZIP"; InvalidArgument for anything else.
absl::StatusOr<RecordCompression> ParseRecordCompression(absl::string_view name);

// The error of the system call on `path` that has just failed, as TensorFlow words it:
// "path; No such file or directory".
absl::Status FileError(const std::string& path, int error_number);

}  // namespace muster
