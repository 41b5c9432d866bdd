#include "muster/checkpoint/records/record_format.h"

#include "muster/base/status.h"

namespace muster {

absl::StatusOr<RecordCompression> ParseRecordCompression(absl::string_view name) {
  if (name.empty()) return RecordCompression::kNone;
  if (name == "ZLIB") return RecordCompression::kZlib;
  if (name == "GZIP") return RecordCompression::kGzip;
  return InvalidArgument("Unsupported compression_type: ", name, "; it must be \"\", ZLIB or GZIP");
}

}  // namespace muster
