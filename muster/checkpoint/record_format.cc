#include "muster/checkpoint/record_format.h"

#include <cstring>

#include "muster/base/status.h"

namespace muster {

absl::StatusOr<RecordCompression> ParseRecordCompression(absl::string_view name) {
  if (name.empty()) return RecordCompression::kNone;
  if (name == "ZLIB") return RecordCompression::kZlib;
  if (name == "GZIP") return RecordCompression::kGzip;
  return InvalidArgument("Unsupported compression_type: ", name, "; it must be \"\", ZLIB or GZIP");
}

absl::Status FileError(const std::string& path, int error_number) {
  const absl::Status status = absl::ErrnoToStatus(error_number, "");
  // TensorFlow calls a folder in the place of a file a failed precondition.
  const absl::StatusCode code =
      error_number == EISDIR ? absl::StatusCode::kFailedPrecondition : status.code();
  return absl::Status(code, absl::StrCat(path, "; ", std::strerror(error_number)));
}

}  // namespace muster
