// Messages in protobuf's encoding, read and written without protobuf: the parts that carry tensors,
// so that elements are copied once at most.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

#include "muster/base/status.h"
#include "muster/tensor/buffer.h"

namespace muster {

enum class WireType : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

// A message that was received: pieces in their order, which `owner` keeps alive.
struct WireBytes {
  std::vector<absl::string_view> pieces;
  std::shared_ptr<const void> owner;
  size_t size_bytes() const;
  // One piece that owns its text.
  static WireBytes Of(std::string text);
};

// A part of a message, walked from front to back. A cheap value that points into a WireBytes. All
// errors are InvalidArgument; input may be anything.
class WireReader {
 public:
  explicit WireReader(const WireBytes& bytes);

  size_t remaining() const { return remaining_; }
  bool at_end() const { return remaining_ == 0; }
  absl::StatusOr<uint64_t> Varint();
  struct Tag {
    uint32_t field = 0;
    WireType type = WireType::kVarint;
  };
  absl::StatusOr<Tag> NextTag();
  // The next `length` bytes as a message of their own; passes over them.
  absl::StatusOr<WireReader> Part(size_t length);
  // A length and the bytes that follow it.
  absl::StatusOr<WireReader> Bytes();
  absl::Status SkipValue(WireType type);
  absl::Status Skip(size_t length);
  // Requires: as many bytes remain.
  void CopyTo(char* to, size_t length);
  std::string Text() const;  // all that remains
  void AppendTextTo(std::string& text) const;
  // What remains, if it is contiguous; null data otherwise.
  absl::string_view Contiguous() const;
  const std::shared_ptr<const void>& owner() const { return bytes_->owner; }

 private:
  const WireBytes* bytes_;
  size_t piece_ = 0;   // in which the next byte is
  size_t offset_ = 0;  // of the next byte in it
  size_t remaining_ = 0;
};

// A message to send. Memory of tensors is attached, not copied.
class WireMessage {
 public:
  // One of the two.
  struct Piece {
    std::string text;
    Buffer buffer;
    size_t size() const { return buffer ? buffer.length_bytes() : text.size(); }
  };

  void Append(absl::string_view text);
  void AppendVarint(uint64_t value);
  void AppendVarintField(uint32_t field, uint64_t value);
  // A tag and a length; the caller appends that many bytes.
  void AppendHeader(uint32_t field, size_t length);
  void AppendBytesField(uint32_t field, absl::string_view bytes);
  // Small memory is copied: a slice of its own costs more.
  void Attach(const Buffer& buffer);
  void Append(WireMessage message);
  // What is in it, in case that it is too much. The largest is kept.
  void NoteTensor(absl::string_view name, size_t bytes);
  const std::string& largest_name() const { return largest_name_; }
  size_t largest_bytes() const { return largest_bytes_; }

  size_t size_bytes() const { return size_bytes_; }
  const std::vector<Piece>& pieces() const { return pieces_; }
  std::vector<Piece>& pieces() { return pieces_; }
  std::string Text() const;

 private:
  std::string& Tail();
  std::vector<Piece> pieces_;
  size_t size_bytes_ = 0;
  std::string largest_name_;
  size_t largest_bytes_ = 0;
};

}  // namespace muster
