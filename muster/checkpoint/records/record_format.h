// What readers and writers of TFRecord files share. A file is a sequence of records, each
//   u64 length | u32 masked CRC-32C of the length | payload | u32 masked CRC-32C of the payload
// (little endian), and as a whole may be one zlib or gzip stream.
#pragma once

#include <cstddef>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace muster {

inline constexpr size_t kRecordHeaderBytes = 12;
inline constexpr size_t kRecordTrailerBytes = 4;

enum class RecordCompression { kNone, kZlib, kGzip };

// "", "ZLIB" or "GZIP"; InvalidArgument for anything else.
absl::StatusOr<RecordCompression> ParseRecordCompression(absl::string_view name);

}  // namespace muster
