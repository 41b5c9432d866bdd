#include "muster/ops/input/byte_buffer.h"

#include <algorithm>

namespace muster {
namespace {

constexpr size_t kBlockBytes = 256 << 10;

}  // namespace

absl::StatusOr<bool> ByteBuffer::ReadMore() {
  if (begin_ > 0) {
    bytes_.erase(0, begin_);
    begin_ = 0;
  }
  const size_t have = bytes_.size();
  bytes_.resize(have + kBlockBytes);
  const absl::StatusOr<size_t> got = source_->Read(bytes_.data() + have, kBlockBytes);
  bytes_.resize(have + (got.ok() ? *got : 0));
  RETURN_IF_ERROR(got.status());
  return *got > 0;
}

absl::StatusOr<absl::string_view> ByteBuffer::Peek(size_t size) {
  while (ahead().size() < size) {
    ASSIGN_OR_RETURN(const bool more, ReadMore());
    if (!more) break;
  }
  return ahead().substr(0, size);
}

absl::StatusOr<bool> ByteBuffer::Skip(size_t size) {
  while (size > 0) {
    if (ahead().empty()) {
      ASSIGN_OR_RETURN(const bool more, ReadMore());
      if (!more) return false;
    }
    const size_t step = std::min(size, ahead().size());
    Consume(step);
    size -= step;
  }
  return true;
}

}  // namespace muster
