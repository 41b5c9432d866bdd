// Looks ahead in a byte source.
#pragma once

#include <memory>
#include <string>

#include "muster/base/status.h"
#include "muster/checkpoint/byte_source.h"

namespace muster {

class ByteBuffer {
 public:
  explicit ByteBuffer(std::unique_ptr<ByteSource> source) : source_(std::move(source)) {}

  // Sees to it that `size` bytes are there; fewer only at the end. Gives what there is.
  absl::StatusOr<absl::string_view> Peek(size_t size);
  // What has been read and not yet consumed; grows by another block, false at the end.
  absl::string_view ahead() const { return absl::string_view(bytes_).substr(begin_); }
  absl::StatusOr<bool> ReadMore();
  // Requires: size <= ahead().size().
  void Consume(size_t size) { begin_ += size; }
  // Passes over `size` bytes; false when there are fewer.
  absl::StatusOr<bool> Skip(size_t size);

 private:
  const std::unique_ptr<ByteSource> source_;
  std::string bytes_;
  size_t begin_ = 0;
};

}  // namespace muster
