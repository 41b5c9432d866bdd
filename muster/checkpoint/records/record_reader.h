// Reads TFRecord files, plain or compressed, from front to back. One thread at a time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "muster/checkpoint/byte_source.h"

namespace muster {

class RecordReader {
 public:
  static absl::StatusOr<std::unique_ptr<RecordReader>> Open(
      const std::string& path, RecordCompression compression = RecordCompression::kNone);
  explicit RecordReader(std::unique_ptr<ByteSource> source) : source_(std::move(source)) {}

  // The payload of the next record. OutOfRange at the end of the file, also inside a header;
  // DataLoss "truncated record at N" where the file ends inside a record, "corrupted record at N"
  // where a checksum is wrong. A record that is not whole stays where it is: when the file has
  // grown, the same call reads it.
  absl::StatusOr<std::string> Next();

  // Whether the next record is in memory, so that Next does not read the file.
  bool has_whole_record() const;

  // Where the next record starts, in bytes of the decompressed file.
  uint64_t offset() const { return offset_; }

 private:
  // Sees to it that `size` bytes of the record at offset_ are in memory; false at the end.
  absl::StatusOr<bool> Have(uint64_t size);
  const char* at(size_t position) const { return buffer_.data() + begin_ + position; }

  const std::unique_ptr<ByteSource> source_;
  uint64_t offset_ = 0;
  // Bytes [begin_, end_) of the buffer were read and not yet handed out; the first is at offset_.
  std::vector<char> buffer_;
  size_t begin_ = 0;
  size_t end_ = 0;
};

}  // namespace muster
