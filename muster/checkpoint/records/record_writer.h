// Writes TFRecord files, plain or compressed. One thread at a time.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "muster/checkpoint/records/record_format.h"

namespace muster {

struct RecordWriterOptions {
  RecordCompression compression = RecordCompression::kNone;
  // How zlib compresses; its own numbers.
  std::optional<int> window_bits;
  int level = -1;
  int method = 8;
  int memory_level = 9;
  int strategy = 0;
  // An existing file is an error (AlreadyExists) instead of being emptied.
  bool must_be_new = false;
};

class RecordWriter {
 public:
  static absl::StatusOr<std::unique_ptr<RecordWriter>> Open(
      const std::string& path, const RecordWriterOptions& options = RecordWriterOptions());
  ~RecordWriter();  // closes, and forgets about errors

  absl::Status Write(absl::string_view record);
  // Everything written so far is in the file (no fsync), in whole records if it is not compressed.
  absl::Status Flush();
  // Later calls but Close itself are FailedPrecondition "Writer is closed.".
  absl::Status Close();

  const std::string& path() const { return path_; }

 private:
  class Deflater;
  RecordWriter(std::string path, int descriptor, std::unique_ptr<Deflater> deflater);
  void Append(absl::string_view bytes);
  absl::Status WriteOut();

  const std::string path_;
  int descriptor_;
  std::unique_ptr<Deflater> deflater_;
  std::string pending_;     // bytes for the file, whole records if it is not compressed
  uint64_t file_size_ = 0;  // what the file has of them
  absl::Status status_;     // of the first write that failed; those after it are not tried
};

}  // namespace muster
