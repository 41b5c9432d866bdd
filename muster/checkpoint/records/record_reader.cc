#include "muster/checkpoint/records/record_reader.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "muster/base/status.h"
#include "muster/checkpoint/crc32c.h"
#include "muster/checkpoint/table/coding.h"

namespace muster {
namespace {

constexpr size_t kReadBytes = 256 << 10;

}  // namespace

absl::StatusOr<std::unique_ptr<RecordReader>> RecordReader::Open(const std::string& path,
                                                                 RecordCompression compression) {
  ASSIGN_OR_RETURN(std::unique_ptr<ByteSource> file, OpenFile(path));
  return std::make_unique<RecordReader>(Decompressed(std::move(file), compression));
}

absl::StatusOr<bool> RecordReader::Have(uint64_t size) {
  while (end_ - begin_ < size) {
    if (buffer_.size() - end_ < kReadBytes && begin_ > 0) {
      std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
      end_ -= begin_;
      begin_ = 0;
    }
    // Grows with what has come, not with what a header claims.
    if (buffer_.size() - end_ < kReadBytes) {
      buffer_.resize(std::max(2 * buffer_.size(), end_ + kReadBytes));
    }
    ASSIGN_OR_RETURN(const size_t got, source_->Read(buffer_.data() + end_, buffer_.size() - end_));
    if (got == 0) return false;
    end_ += got;
  }
  return true;
}

bool RecordReader::has_whole_record() const {
  constexpr uint64_t kFrame = kRecordHeaderBytes + kRecordTrailerBytes;
  const uint64_t have = end_ - begin_;
  return have >= kFrame && have - kFrame >= DecodeFixed64(at(0));
}

absl::StatusOr<std::string> RecordReader::Next() {
  ASSIGN_OR_RETURN(const bool has_header, Have(kRecordHeaderBytes));
  if (!has_header) return absl::OutOfRangeError("End of file");
  const uint64_t length = DecodeFixed64(at(0));
  if (UnmaskCrc32c(DecodeFixed32(at(8))) != Crc32c(absl::string_view(at(0), 8))) {
    return absl::DataLossError(absl::StrCat("corrupted record at ", offset_));
  }
  constexpr uint64_t kFrame = kRecordHeaderBytes + kRecordTrailerBytes;
  bool is_whole = length <= std::numeric_limits<uint64_t>::max() - kFrame;
  if (is_whole) {
    ASSIGN_OR_RETURN(is_whole, Have(length + kFrame));
  }
  if (!is_whole) return absl::DataLossError(absl::StrCat("truncated record at ", offset_));
  std::string payload(at(kRecordHeaderBytes), static_cast<size_t>(length));
  if (UnmaskCrc32c(DecodeFixed32(at(kRecordHeaderBytes + payload.size()))) != Crc32c(payload)) {
    return absl::DataLossError(absl::StrCat("corrupted record at ", offset_ + kRecordHeaderBytes));
  }
  begin_ += payload.size() + kFrame;
  offset_ += length + kFrame;
  return payload;
}

}  // namespace muster
