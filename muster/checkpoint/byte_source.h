// Bytes in order: a file, memory, or either of them decompressed.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "muster/checkpoint/records/record_format.h"

namespace muster {

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Reads up to `size` bytes; 0 at the end. After an end more may come when a file has grown.
  virtual absl::StatusOr<size_t> Read(char* to, size_t size) = 0;
};

// NotFound and its kin when the file cannot be read.
absl::StatusOr<std::unique_ptr<ByteSource>> OpenFile(const std::string& path);
// Requires: `bytes` outlives the source.
std::unique_ptr<ByteSource> MemorySource(absl::string_view bytes);
// What `compressed` holds when it is decompressed; DataLoss when it cannot be. A gzip file may have
// several members.
std::unique_ptr<ByteSource> Decompressed(std::unique_ptr<ByteSource> compressed,
                                         RecordCompression compression);

}  // namespace muster
