// Numbers as the table and bundle formats write them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace muster {

void AppendFixed32(std::string& out, uint32_t value);  // little endian
void AppendFixed64(std::string& out, uint64_t value);
void AppendVarint(std::string& out, uint64_t value);

// Requires: 4 bytes.
uint32_t DecodeFixed32(const char* p);
uint64_t DecodeFixed64(const char* p);

// Takes a number from the front; nothing when it is cut off, too long or does not fit.
std::optional<uint64_t> TakeVarint64(absl::string_view& in);
std::optional<uint32_t> TakeVarint32(absl::string_view& in);
// Takes `length` bytes from the front; nothing when there are fewer.
std::optional<absl::string_view> TakeBytes(absl::string_view& in, uint64_t length);

}  // namespace muster
