#include "muster/transport/wire/wire_message.h"

#include <algorithm>
#include <cstring>

#include "muster/base/check.h"

namespace muster {
namespace {

constexpr size_t kAttachFromBytes = 2048;

absl::Status Truncated() {
  return InvalidArgument("The message ends in the middle of a field");
}

}  // namespace

size_t WireBytes::size_bytes() const {
  size_t size = 0;
  for (absl::string_view piece : pieces) size += piece.size();
  return size;
}

WireBytes WireBytes::Of(std::string text) {
  auto owned = std::make_shared<const std::string>(std::move(text));
  WireBytes bytes;
  bytes.pieces.emplace_back(*owned);
  bytes.owner = std::move(owned);
  return bytes;
}

WireReader::WireReader(const WireBytes& bytes) : bytes_(&bytes), remaining_(bytes.size_bytes()) {}

absl::StatusOr<uint64_t> WireReader::Varint() {
  uint64_t value = 0;
  for (int shift = 0; shift < 70; shift += 7) {
    if (remaining_ == 0) return Truncated();
    while (offset_ == bytes_->pieces[piece_].size()) {
      ++piece_;
      offset_ = 0;
    }
    const uint8_t byte = static_cast<uint8_t>(bytes_->pieces[piece_][offset_++]);
    --remaining_;
    // The tenth byte has room for one bit.
    if (shift == 63 && byte > 1) break;
    value |= uint64_t{byte & 0x7Fu} << shift;
    if ((byte & 0x80) == 0) return value;
  }
  return InvalidArgument("A number in the message has more than 64 bits");
}

absl::StatusOr<WireReader::Tag> WireReader::NextTag() {
  ASSIGN_OR_RETURN(const uint64_t number, Varint());
  const uint64_t field = number >> 3;
  if (number > UINT32_MAX || field == 0) {
    return InvalidArgument("The message has a field with number ", field);
  }
  const auto type = static_cast<WireType>(number & 7);
  switch (type) {
    case WireType::kVarint:
    case WireType::kFixed64:
    case WireType::kBytes:
    case WireType::kFixed32:
      return Tag{static_cast<uint32_t>(field), type};
  }
  return InvalidArgument("Field ", field, " of the message has wire type ", number & 7,
                         ", which is not used");
}

absl::Status WireReader::Skip(size_t length) {
  if (length > remaining_) return Truncated();
  remaining_ -= length;
  while (length > 0) {
    const size_t here = std::min(length, bytes_->pieces[piece_].size() - offset_);
    offset_ += here;
    length -= here;
    if (length > 0) {
      ++piece_;
      offset_ = 0;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<WireReader> WireReader::Part(size_t length) {
  WireReader part = *this;
  RETURN_IF_ERROR(Skip(length));
  part.remaining_ = length;
  return part;
}

absl::StatusOr<WireReader> WireReader::Bytes() {
  ASSIGN_OR_RETURN(const uint64_t length, Varint());
  return Part(length);
}

absl::Status WireReader::SkipValue(WireType type) {
  switch (type) {
    case WireType::kVarint:
      return Varint().status();
    case WireType::kFixed64:
      return Skip(8);
    case WireType::kBytes:
      return Bytes().status();
    case WireType::kFixed32:
      return Skip(4);
  }
  return Internal("Unknown wire type");
}

void WireReader::CopyTo(char* to, size_t length) {
  DCHECK(length <= remaining_);
  remaining_ -= length;
  while (length > 0) {
    const absl::string_view piece = bytes_->pieces[piece_];
    const size_t here = std::min(length, piece.size() - offset_);
    if (here > 0) std::memcpy(to, piece.data() + offset_, here);
    to += here;
    offset_ += here;
    length -= here;
    if (length > 0) {
      ++piece_;
      offset_ = 0;
    }
  }
}

void WireReader::AppendTextTo(std::string& text) const {
  WireReader rest = *this;
  const size_t start = text.size();
  text.resize(start + rest.remaining());
  rest.CopyTo(text.data() + start, rest.remaining());
}

std::string WireReader::Text() const {
  std::string text;
  AppendTextTo(text);
  return text;
}

absl::string_view WireReader::Contiguous() const {
  size_t piece = piece_;
  size_t offset = offset_;
  while (piece < bytes_->pieces.size() && offset == bytes_->pieces[piece].size()) {
    ++piece;
    offset = 0;
  }
  if (piece == bytes_->pieces.size() || bytes_->pieces[piece].size() - offset < remaining_) {
    return absl::string_view();
  }
  return bytes_->pieces[piece].substr(offset, remaining_);
}

std::string& WireMessage::Tail() {
  if (pieces_.empty() || pieces_.back().buffer) pieces_.emplace_back();
  return pieces_.back().text;
}

void WireMessage::Append(absl::string_view text) {
  Tail().append(text.data(), text.size());
  size_bytes_ += text.size();
}

void WireMessage::AppendVarint(uint64_t value) {
  char text[10];
  size_t size = 0;
  while (value >= 0x80) {
    text[size++] = static_cast<char>(value | 0x80);
    value >>= 7;
  }
  text[size++] = static_cast<char>(value);
  Append(absl::string_view(text, size));
}

void WireMessage::AppendVarintField(uint32_t field, uint64_t value) {
  AppendVarint(uint64_t{field} << 3);
  AppendVarint(value);
}

void WireMessage::AppendHeader(uint32_t field, size_t length) {
  AppendVarint(uint64_t{field} << 3 | static_cast<uint64_t>(WireType::kBytes));
  AppendVarint(length);
}

void WireMessage::AppendBytesField(uint32_t field, absl::string_view bytes) {
  AppendHeader(field, bytes.size());
  Append(bytes);
}

void WireMessage::Attach(const Buffer& buffer) {
  if (buffer.length_bytes() < kAttachFromBytes) {
    if (buffer.length_bytes() > 0) Append(absl::string_view(buffer.data(), buffer.length_bytes()));
    return;
  }
  pieces_.push_back({std::string(), buffer});
  size_bytes_ += buffer.length_bytes();
}

void WireMessage::NoteTensor(absl::string_view name, size_t bytes) {
  // Others are never the reason.
  constexpr size_t kNotedFromBytes = 1 << 20;
  if (bytes < kNotedFromBytes || bytes <= largest_bytes_) return;
  largest_name_ = std::string(name);
  largest_bytes_ = bytes;
}

void WireMessage::Append(WireMessage message) {
  NoteTensor(message.largest_name_, message.largest_bytes_);
  for (Piece& piece : message.pieces_) {
    if (piece.buffer) {
      size_bytes_ += piece.size();
      pieces_.push_back(std::move(piece));
    } else {
      Append(piece.text);
    }
  }
}

std::string WireMessage::Text() const {
  std::string text;
  text.reserve(size_bytes_);
  for (const Piece& piece : pieces_) {
    if (piece.buffer) {
      text.append(piece.buffer.data(), piece.buffer.length_bytes());
    } else {
      text += piece.text;
    }
  }
  return text;
}

}  // namespace muster
